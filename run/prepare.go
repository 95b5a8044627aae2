package run

import (
	"context"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/paths"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/internal/writable"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/dataset"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/run/memory"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
	"github.com/easyrl/easyrl/trainer/schedule"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// preparation reads and tries what a run needs. Train, SFT and Check share it, so that they refuse the same runs.
// It changes nothing on disk, and close ends everything that it starts.
type preparation struct {
	notes
	cfg      *configs.Config
	resolved *configs.Resolved
	opts     Options
	task     task

	from     string           // checkpoint to resume from; empty for a new run
	identity trainer.State    // the fields of a checkpoint's state that identify the run
	id       trainer.Identity // the run's identity file
	folder   *folder.Folder
	reader   *dataset.Reader
	examples int // usable prompts or demonstrations
	dropped  int // unusable ones in the same files
	tokens   memory.Tokens
	limit    memory.Limit

	// Of a train task:
	prompts [][]rollout.Prompt             // training prompts of each file
	sets    []evaluate.Set                 // held-out prompts
	prompt  func(place int) rollout.Prompt // the endless training order
	spare   func(place int) rollout.Prompt // the order of replacements for dynamic sampling
	reward  *reward.Scorer                 // set by try

	demos trainer.Demonstrations // of an sft task
	dev   npu.Device             // set by openDevice

	closers []func()
	locked  bool         // this process holds the lock of the run's folder
	claimed func() error // returns an error if the folder has changed since it was claimed
}

// Names of tasks.
const (
	trainTask = "train"
	sftTask   = "sft"
)

// task identifies what a job does. Checkpoints record it. A replayed step has none: it
// can continue either task.
type task struct {
	name  string // trainTask or sftTask
	key   string // configuration key of files
	files []string
	steps int
}

// taskOf returns the task that a configuration is checked for.
func taskOf(cfg *configs.Config, kind configs.Task) task {
	if kind == configs.SFTTask {
		return task{sftTask, "sft.data", cfg.SFT.Data, cfg.SFT.Steps}
	}
	return task{trainTask, "data.train", cfg.Data.Train, cfg.Run.Steps}
}

func newPreparation(resolved *configs.Resolved, opts Options, t task) *preparation {
	return &preparation{notes: notes{log: opts.Log}, cfg: &resolved.Config, resolved: resolved, opts: opts, task: t,
		limit: memory.ProcessLimit()}
}

// close calls the functions given to atEnd, the last one first.
func (p *preparation) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

// atEnd makes close call f.
func (p *preparation) atEnd(f func()) { p.closers = append(p.closers, f) }

// read reads and checks the run's files, except for the values of weights.
func (p *preparation) read(ctx context.Context) (err error) {
	defer func() { err = paths.Explain(err, p.opts.Files...) }()
	for _, line := range unusedSettings(p.resolved, configs.Task(p.task.name)) {
		p.warn("%s", line)
	}
	if p.from, err = p.claimDir(); err != nil {
		return err
	}
	if p.folder, err = openModel(p.cfg); err != nil {
		return err
	}
	if err := named(p.cfg, p.folder.CheckWeights()); err != nil {
		return err
	}
	if err := ranks.CheckTorch(p.cfg, p.folder); err != nil {
		return err
	}
	if err := ranks.CheckMesh(p.cfg, p.folder.Shape); err != nil {
		return err
	}
	if p.task.name == sftTask {
		err = p.readDemonstrations(ctx)
	} else if err = ranks.CheckAdapters(p.cfg); err == nil {
		// If torch.dtype leaves the type to the ranks, loadTorch repeats this with the type that they chose.
		if text := ranks.TorchTypeWarning(p.cfg, p.cfg.Torch.DType); text != "" {
			p.warn("%s", text)
		}
		err = p.readPrompts(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.readTokens(); err != nil {
		return err
	}
	return p.identify()
}

// needs returns the memory that the run needs.
func (p *preparation) needs() memory.Need {
	each := instances.EngineConfig(p.cfg, "", p.folder.Shape)
	if p.cfg.Train.Backend == configs.PyTorch {
		return memory.OfTorch(p.cfg, p.folder.Shape, !p.folder.Foreign && !ranks.Adapters(p.cfg), each)
	}
	process, _ := ranks.Process(p.cfg) // Train, SFT and Check report the error first
	return memory.Of(p.cfg, p.folder.Shape, each, p.tokens, p.task.name == sftTask, process)
}

// readPrompts reads the prompts to train and to evaluate on.
func (p *preparation) readPrompts(ctx context.Context) (err error) {
	p.reader = dataset.New(p.folder, p.cfg, publish.CanaryTokens, p.warn)
	var dropped []int
	if p.prompts, dropped, err = p.reader.Prompts(ctx, p.cfg.Data.Train); err != nil {
		return err
	}
	all := slices.Concat(p.prompts...)
	p.examples = len(all)
	for i := range all {
		p.tokens.AddPrompt(len(all[i].IDs), p.folder.Shape.MaxPositions, p.cfg)
	}
	for _, n := range dropped {
		p.dropped += n
	}
	if err := p.reader.CheckContext(all); err != nil {
		return err
	}
	if p.sets, err = p.reader.EvalSets(ctx); err != nil {
		return err
	}
	if err := p.reader.CheckSources(p.resolved); err != nil {
		return err
	}
	p.reader.WarnPlainText()
	dataset.WarnRepeats(p.warn, p.cfg.Rollout.PromptsPerStep, p.examples, "rollout.prompts_per_step", "data.train")
	dataset.WarnOverlap(p.warn, all, p.sets)
	if p.prompt, err = p.reader.Endless(p.prompts, p.cfg.Run.Seed); err != nil {
		return err
	}
	spareSeed := ^p.cfg.Run.Seed // for an order that is independent of the training order
	p.spare, err = p.reader.Endless(p.prompts, spareSeed)
	return err
}

// readTokens checks the files and folders that connections need.
func (p *preparation) readTokens() error {
	if p.task.name == sftTask {
		return nil // it has no connections
	}
	if _, err := serversToken(p.cfg); err != nil {
		return err
	}
	if dir := p.cfg.Inference.WeightsDir; dir != "" {
		if err := writable.Folder(dir); err != nil {
			return usage.Errorf("inference.weights_dir: %w", err)
		}
	}
	if p.cfg.Control.Listen == "" {
		return nil
	}
	_, err := controlToken(p.cfg)
	return err
}

// controlToken reads the token of the control address.
func controlToken(cfg *configs.Config) (string, error) {
	token, err := client.ReadToken(cfg.Control.TokenFile)
	if err != nil {
		return "", usage.Errorf("control.token_file: %w", err)
	}
	return token, nil
}

// serversToken reads the token of the run's servers.
func serversToken(cfg *configs.Config) (string, error) {
	token, err := client.ReadToken(cfg.Inference.TokenFile)
	if err != nil {
		return "", usage.Errorf("inference.token_file: %w", err)
	}
	return token, nil
}

// try compares the run's memory with the machine's, opens the device, and tries the reward
// on the first prompts.
func (p *preparation) try(ctx context.Context) (err error) {
	needs := p.needs()
	if err := needs.Check(p.limit, p.warn); err != nil {
		return err
	}
	if err := p.openDevice(); err != nil {
		return err
	}
	if p.task.name == sftTask {
		return nil
	}
	if p.reward, err = reward.New(p.cfg.Reward, p.cfg.Rollout.MaxTokens); err != nil {
		return usage.Wrap(err)
	}
	p.atEnd(func() { _ = p.reward.Close() })
	return p.reward.Try(ctx, slices.Concat(p.prompts...))
}

// openDevice opens the trainer's device until close.
func (p *preparation) openDevice() (err error) {
	if p.dev, err = OpenDevice(p.cfg.Device.Kind, p.cfg.Device.Numerics, p.cfg.Device.Threads); err != nil {
		return err
	}
	p.atEnd(func() { _ = p.dev.Close() })
	return nil
}

// rule relates the steps, batches and versions of a run: step n trains what version n sampled.
func rule() schedule.Rule { return schedule.Rule{} }

// modelsConfig returns which models the run keeps.
func (p *preparation) modelsConfig() trimodel.Config {
	cfg := p.cfg
	// A leaf holds whole sequences, so an update has at most as many rows and leaves as if each sequence were a leaf.
	format := func(divisor float64, sequences int) npu.FixedPoint {
		return optim.FixedPoint(divisor, npu.MaxUnits(sequences, sequences*p.tokens.Sequence))
	}
	if p.task.name == sftTask {
		return trimodel.Config{Temperature: 1, Recompute: cfg.Train.Recompute, Optim: cfg.Train.Config,
			Numerics: cfg.Numerics(), Format: format(float64(p.tokens.Step), cfg.SFT.BatchSize)}
	}
	updatePrompts := (cfg.Rollout.PromptsPerStep + cfg.Train.Minibatches - 1) / cfg.Train.Minibatches
	responses, maxTokens := updatePrompts*cfg.Rollout.GroupSize, cfg.Rollout.MaxTokens
	divisor := cfg.Loss.Aggregation.Denominator(responses, responses*maxTokens, maxTokens)
	if loss.Unnormalized(cfg.Loss.Advantage) {
		divisor *= 16 // such advantages grow with the rewards: more range, at 4 bits of resolution
	}
	return trimodel.Config{OldPolicy: cfg.Loss.OldPolicy, Reference: cfg.Loss.Beta > 0, Versions: rule().Versions(),
		Temperature: float32(cfg.Rollout.Temperature), Recompute: cfg.Train.Recompute, Optim: cfg.Train.Config,
		Numerics: cfg.Numerics(), Format: format(divisor, responses), LinearSums: cfg.Log.Audit, Seed: cfg.Run.Seed}
}
