package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
)

// Rows of a run's trace. Each instance has a row too.
const (
	trainerRow  = "trainer"
	producerRow = "producer"
)

// Train trains a model with reinforcement learning and prints the run's folder to
// opts.Out. A cancelled context makes it return a StoppedError, after writing a checkpoint if
// training has begun.
func Train(ctx context.Context, resolved *configs.Resolved, opts Options) error {
	if follows, err := follow(ctx, &resolved.Config, &opts, false); follows || err != nil {
		return err
	}
	cfg := &resolved.Config
	t := training{job: newJob(resolved, opts, taskOf(cfg, configs.TrainTask))}
	defer t.close()
	if err := t.open(ctx); err != nil {
		return t.unbegun(ctx, err)
	}
	return t.train(ctx)
}

// training is a job that samples: it adds instances.
type training struct {
	*job
	instances *instances.Instances
	rollouts  trainer.Rollouts
}

// open prepares the run. It changes nothing in the run's folder before openDir, when everything that may fail has
// been tried.
func (t *training) open(ctx context.Context) (err error) {
	if err := t.read(ctx); err != nil {
		return err
	}
	if err := t.try(ctx); err != nil {
		return err
	}
	if t.control, err = t.listen(); err != nil {
		return err
	}
	t.openTrace()
	if err := t.job.open(ctx); err != nil {
		return err
	}
	if err := t.startInstances(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil { // a stopped run leaves no folder
		return context.Cause(ctx)
	}
	if t.control != nil {
		t.note("live page: http://%s/", t.control.Addr())
	}
	t.announce()
	if err := t.openDir(); err != nil {
		return err
	}
	t.openConsole()
	if err := t.openMonitor(); err != nil {
		return err
	}
	if err := t.connect(); err != nil {
		return err
	}
	return t.instances.Begin(ctx, t.control)
}

// startInstances starts the run's engines and connects to its servers.
func (t *training) startInstances(ctx context.Context) (err error) {
	t.instances, err = startInstances(ctx, t.folder, t.cfg, t.dev, t.opts.Fleet,
		instances.Deps{CanaryTokens: t.reader.CanaryTokens(),
			Spans: t.spans, Rest: cores.UseIdleThreads(t.dev, t.cfg), Say: t.say,
			Dir: t.cfg.Run.Dir, Trainer: t.id.Trainer, Verification: t.verification, Adapters: ranks.Adapters(t.cfg)})
	if err != nil {
		return err
	}
	t.atEnd(func() { _ = t.instances.Close() })
	return nil
}

// openTrace starts the run's trace, or continues the existing one.
func (t *training) openTrace() {
	t.spans = trace.New(trace.DefaultSpans)
	t.spans.Track(trainerRow) // on top
	if t.from == "" {
		return
	}
	if err := t.spans.Continue(t.tracePath()); err != nil && report.Damaged(t.tracePath()) == "" {
		t.warn("%v", err)
	}
}

// listen listens on the control address until close. It returns nil if none is set.
func (p *preparation) listen() (*control.Server, error) {
	c := &p.cfg.Control
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // a nil server does nothing
	}
	token, err := controlToken(p.cfg)
	if err != nil {
		return nil, err
	}
	live, err := control.New(c.Listen, token, p.cfg.Run.Dir)
	if err != nil {
		return nil, usage.Errorf("control.listen: %w", err)
	}
	p.atEnd(live.Close)
	return live, nil
}

// publishTo publishes w, a version of m, to the instances. Meanwhile m replaces ranks that fail, because instances
// may read w from them.
func publishTo(ctx context.Context, m backend.Models, in *instances.Instances, w inference.Weights) error {
	return backend.While(ctx, m, func(ctx context.Context) error { return in.Publish(ctx, w) })
}

// connect wires the parts of the run to the trainer.
func (t *training) connect() error {
	cfg := t.cfg
	evalDeps := evaluate.Deps{Fleet: t.instances.Fleet(), Reward: reward.ForEvaluation(t.reward, cfg.Eval.Marks),
		Text: t.folder.Text, Warn: t.warn,
		Progress: func(done, of int) { t.console.Progress(done, of, "prompts evaluated") }}
	sampling, err := t.newProducer()
	if err != nil {
		return err
	}
	t.rollouts = trainer.Rollouts{
		Loss: cfg.Loss, MaxTokens: cfg.Rollout.MaxTokens, DynamicSampling: cfg.Rollout.DynamicSampling > 0,
		LogRollouts: cfg.Log.Rollouts, Rule: rule(),
		BySource: len(data.Sources(nil, slices.Concat(t.prompts...))) > 1, Cores: t.cores(),
		Ranks: cfg.Parallel.Mesh().Size(), PeakFLOPS: t.peak(),
		Prompt:  t.prompt,
		Produce: sampling.Start,
		Evaluate: func(ctx context.Context, step int) (scores map[string]float64, score float64, err error) {
			err = backend.While(ctx, t.models, func(ctx context.Context) (err error) { // ranks may fail meanwhile
				scores, score, err = t.evaluateStep(ctx, step, t.sets, evalDeps)
				return err
			})
			return scores, score, err
		},
		Queue: t.spans.Lanes(producerRow),
	}
	if cfg.Log.Audit {
		tensors := t.folder.Shape.Params().Names()
		t.rollouts.Leaves = func(step int, updates []trainer.UpdateSums) error {
			return trainer.WriteLeaves(cfg.Run.Dir, step, cfg.Run.Seed, tensors, updates)
		}
	}
	t.rollouts.Publish = func(ctx context.Context, w inference.Weights) error {
		return publishTo(ctx, t.models, t.instances, w)
	}
	if cfg.Swaps() {
		s := newSwapping(t.models, t.instances)
		t.models, t.rollouts.Publish = s, s.handToInstances
	}
	return nil
}

// peak returns the peak rate of the trainer's device in operations per second, or 0 for PyTorch ranks, whose
// devices are unknown here.
func (t *training) peak() float64 {
	if t.cfg.Train.Backend == configs.PyTorch {
		return 0
	}
	return device.PeakFLOPS(t.dev)
}

// cores returns a function for trainer.Rollouts.Cores. Call it before RaiseGOMAXPROCS, which changes cores.InUse.
func (t *training) cores() func() int {
	own := cores.InUse(t.cfg)
	return func() int {
		served, known := t.instances.Fleet().Cores()
		if !known {
			return 0
		}
		return own + served
	}
}

// train runs the training loop, then writes the trace and the report.
func (t *training) train(ctx context.Context) error {
	cfg := t.cfg
	if cfg.Rollout.TopP < 1 || cfg.Rollout.TopK > 0 {
		t.warn("training is not exactly on-policy: rollout.top_p and rollout.top_k truncate the distribution for " +
			"sampling but not for training")
	}
	loop, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: cfg.Run.Steps, PromptsPerStep: cfg.Rollout.PromptsPerStep,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Optim: cfg.Train.Config,
		Settings:        t.resolved.Shown(""),
		CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every,
	}, t.state, trainer.Deps{
		Models: t.models, Files: t.folder.Files, Metrics: t.metrics, Progress: t.progress, Warn: t.warn,
		Traffic: t.traffic,
		Track:   t.spans.Track(trainerRow), Disk: t.spans.Track("disk"),
	}, t.rollouts)
	if err != nil {
		return err
	}
	restore := cores.RaiseGOMAXPROCS(cfg.Parallel.Mesh().Size() + cfg.Inference.Instances)
	err = loop.Run(ctx)
	restore()
	if traceErr := t.spans.WriteFile(t.tracePath()); err == nil {
		err = traceErr
	}
	err = t.finish(loop.Step(), err)
	if err == nil {
		_, _ = fmt.Fprintln(t.opts.Out, cfg.Run.Dir)
	}
	return err
}
