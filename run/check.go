package run

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/run/findings"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
)

// CheckOptions sets what Check does.
type CheckOptions struct {
	Task   configs.Task // TrainTask or SFTTask; AnyTask selects the one that the configuration has data for
	Static bool         // only read files, on a machine other than the run's
	JSON   bool         // print one JSON document
}

// Check prepares a run as Train or SFT would, prints the resolved run and what it found to
// opts.Out, and returns the error with which Train or SFT would refuse the run. It changes
// nothing.
func Check(ctx context.Context, resolved *configs.Resolved, opts Options, check CheckOptions) error {
	if follows, err := follow(ctx, &resolved.Config, &opts, true); follows || err != nil {
		return err
	}
	kind := check.Task
	if kind == configs.AnyTask {
		kind = resolved.Task()
	}
	if !check.JSON {
		if err := resolved.Explain(opts.Out); err != nil {
			return err
		}
	}
	c := checking{job: newJob(resolved, opts, taskOf(&resolved.Config, kind))}
	c.checks = true
	c.found = findings.Of(resolved, c.task.name, check.Static)
	err := c.run(ctx, check.Static)
	c.close()
	c.found.OK, c.found.Warnings = err == nil, append(c.found.Warnings, c.said...)
	write := c.found.WriteText
	if check.JSON {
		write = c.found.WriteJSON
		if err != nil {
			c.found.Error = secret.Hide(err.Error())
		}
	}
	return errors.Join(err, write(opts.Out))
}

// checking is a job that is prepared and then ends.
type checking struct {
	*job
	found *findings.Findings
}

// run prepares the job. The static part reads files only.
func (c *checking) run(ctx context.Context, static bool) error {
	err := c.read(ctx)
	c.record()
	if err != nil || static {
		return err
	}
	c.found.Threads = findings.ThreadsOf(c.cfg, c.task.name == sftTask)
	if len(c.found.Memory.Ranks) > 0 {
		c.found.Threads.Divide(ranks.MeshThreads(c.cfg), c.found.Memory.Here)
	}
	c.found.Memory.Limit = &c.limit
	if err := ranks.CheckJoin(c.cfg); err != nil {
		return err
	}
	err = c.try(ctx)
	if c.dev != nil {
		info := c.dev.Info()
		c.found.Device = &findings.Device{Name: info.Name, Arithmetic: info.Arithmetic(), Threads: npu.Threads(c.dev)}
	}
	if err != nil {
		return err
	}
	if c.task.name == sftTask {
		return c.tryWeights(ctx)
	}
	c.found.Reward = &findings.Reward{Tried: c.reward.External()}
	if _, err := c.listen(); err != nil {
		return err
	}
	if err := c.tryWeights(ctx); err != nil {
		return err
	}
	return c.probe(ctx)
}

// record adds what read found before it returned.
func (c *checking) record() {
	if c.folder == nil {
		return
	}
	c.found.Folder = &findings.Folder{Path: c.cfg.Run.Dir, From: c.from}
	if c.from != "" {
		state, _ := trainer.ReadState(c.from) // read reports an error
		c.found.Folder.Step = state.Step
		c.found.Folder.Changed, _ = c.resolved.Changes(c.cfg.Run.Dir)
	}
	s := c.folder.Shape
	c.found.Model = &findings.Model{Source: c.folder.Source, Type: s.Type, Parameters: c.folder.NumParams(),
		Layers: s.Layers, Hidden: s.HiddenSize,
		Vocabulary: s.VocabSize, Context: s.MaxPositions, Template: c.folder.Template != nil,
		Random: c.folder.Dir == ""}
	if c.examples == 0 {
		return
	}
	_ = c.found.AddRanks(c.cfg, s) // read reports an error
	needs := c.needs()
	c.found.Memory = &findings.Memory{Need: needs, Certain: needs.Certain(), Most: needs.Max()}
	c.found.Data = &findings.Data{Key: c.task.key, Usable: c.examples, Dropped: c.dropped, Eval: []findings.Set{}}
	for _, set := range c.sets {
		c.found.Data.Add(set.Name, len(set.Prompts))
	}
	for _, set := range c.demos.HeldOut {
		c.found.Data.Add(set.Name, len(set.Examples))
	}
}

// probe connects to the run's servers and records what they answer.
func (c *checking) probe(ctx context.Context) error {
	deps := instances.Deps{CanaryTokens: c.reader.CanaryTokens(), Dir: c.cfg.Run.Dir,
		Trainer: c.id.Trainer, Adapters: ranks.Adapters(c.cfg)}
	if err := describe(c.folder, c.cfg, &deps); err != nil {
		return err
	}
	probed, err := instances.Probe(ctx, c.cfg, &deps)
	for i := range probed {
		p := &probed[i]
		server := findings.Server{URL: secret.Hide(p.URL), Kind: p.Kind, Capacity: p.Capacity}
		if p.Fault != nil {
			server.Error = secret.Hide(p.Fault.Error())
			if err == nil {
				c.warn("%v; the run would start without it and retry", p.Fault)
			}
		}
		c.found.Servers = append(c.found.Servers, server)
	}
	return err
}

// tryRanks starts the PyTorch ranks of this machine, which load the weights.
func (c *checking) tryRanks(ctx context.Context) error {
	if c.cfg.Torch.Listen != "" {
		return nil // they are started elsewhere
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	c.found.Model.Loaded = true
	c.found.Torch = findings.OfTorch(c.torch.Ranks())
	return nil
}

// tryWeights reads the weights that the run starts from, unless they are random.
func (c *checking) tryWeights(ctx context.Context) error {
	if c.cfg.Train.Backend == configs.PyTorch {
		return c.tryRanks(ctx)
	}
	if c.from != "" {
		return c.open(ctx)
	}
	if c.folder.Dir == "" {
		return nil
	}
	w, err := startWeights(c.cfg, c.folder, c.dev)
	if err != nil {
		return err
	}
	w.Free()
	c.found.Model.Loaded = true
	return nil
}
