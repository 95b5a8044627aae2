package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/evaluate"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/roster"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/page"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

func trainVerb(std streams) verb {
	v := verb{
		name:     "train",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume]",
		summary:  "Train a model with reinforcement learning, as a configuration says.",
		example: `easyrl train configs/quickstart.toml -set run.steps=10 -set run.dir=runs/try
			easyrl train run.toml -resume`,
		flags: newFlags(),
	}
	set := addSettings(v.flags)
	resume := v.flags.Bool("resume", false, "continue from the run's newest valid checkpoint")
	v.run = func(ctx context.Context, args []string) error {
		resolved, err := loadRun(configs.TrainTask, args, *set)
		if err != nil {
			return err
		}
		r := &trainRun{cfg: &resolved.Config, std: std, task: trainTask, bears: inference.DefaultFleetConfig()}
		defer r.close()
		if err := r.open(ctx, resolved, args, *resume); err != nil {
			return err
		}
		return r.train(ctx)
	}
	return v
}

// trainRun is what easyrl train wires together.
type trainRun struct {
	cfg       *configs.Config
	std       streams
	task      string                // trainTask, sftTask, or empty where a step is replayed
	bears     inference.FleetConfig // with instances
	folder    *folder
	sources   int        // that the prompts of training are of
	consoleMu sync.Mutex // of console, and of standard error before there is one
	console   *report.Console
	control   *control.Server // nil without control.listen
	spans     *trace.Spans
	metrics   *report.Metrics
	words     words
	dev       npu.Device
	models    *trimodel.Models
	in        *roster.Roster
	state     trainer.State
	deps      trainer.Deps
	closers   []func()
	locked    bool         // the run's folder is this process's
	claimed   func() error // says whether the folder is still what was claimed
}

func (r *trainRun) close() {
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
}

func (r *trainRun) atEnd(f func()) { r.closers = append(r.closers, f) }

func (r *trainRun) warn(format string, args ...any) {
	r.consoleMu.Lock()
	console := r.console
	if console == nil {
		printer{r.std.err}.line("easyrl: "+format, args...)
	}
	r.consoleMu.Unlock()
	if console != nil {
		console.Note("easyrl: "+format, args...)
	}
}

// openConsole shows the progress of so many steps from now on.
func (r *trainRun) openConsole(steps int) {
	console := report.NewConsole(r.std.err, r.state.Step, steps)
	r.consoleMu.Lock()
	r.console = console
	r.consoleMu.Unlock()
	r.atEnd(console.Close)
}

// open reads and checks all that the run needs before it changes anything in
// the run's folder.
func (r *trainRun) open(ctx context.Context, resolved *configs.Resolved, files []string, resume bool) error {
	cfg := r.cfg
	if err := oneRank(cfg); err != nil {
		return err
	}
	from, err := r.claimDir(resolved, files, resume)
	if err != nil {
		return err
	}
	if r.folder, err = policyFolder(cfg); err != nil {
		return err
	}
	prompts, _, err := r.folder.prompts(cfg.Data.Train, cfg, r.warn)
	if err == nil {
		err = r.checkRoom(slices.Concat(prompts...))
	}
	if err != nil {
		return err
	}
	sets, err := r.folder.evalSets(cfg, r.warn)
	if err == nil {
		err = r.folder.checkPrompts(resolved, true, r.warn)
	}
	if err != nil {
		return err
	}
	score, end, err := scorer(cfg)
	if err != nil {
		return err
	}
	r.atEnd(end)
	if err := score.Try(ctx, slices.Concat(prompts...)); err != nil {
		return err
	}
	if err := r.openModels(from, len(slices.Concat(prompts...))); err != nil {
		return err
	}
	r.openTrace(from)
	if r.in, err = startInstances(ctx, r.folder, cfg, roster.Deps{
		Bears: r.bears, Spans: r.spans, Rest: lend(r.dev, cfg), Warn: r.warn, Folder: cfg.Run.Dir}); err != nil {
		return err
	}
	r.atEnd(func() { _ = r.in.Close() })
	if err := r.openControl(); err != nil {
		return err
	}
	r.announce(from, cfg.Run.Steps, resolved)
	if err := r.openDir(resolved); err != nil {
		return err
	}
	r.openConsole(cfg.Run.Steps)
	if err := r.openWords(resolved); err != nil {
		return err
	}
	if err := r.wire(prompts, sets, score); err != nil {
		return err
	}
	return r.in.Begin(ctx, r.control)
}

// The rows of a run's trace, beside one for each instance.
const (
	trainerRow  = "trainer"
	producerRow = "producer"
)

// openTrace starts the run's trace, or goes on with the one that it has.
func (r *trainRun) openTrace(from string) {
	if !r.cfg.Log.Trace {
		return
	}
	r.spans = trace.New(trace.DefaultSpans)
	r.spans.Track(trainerRow) // on top
	if from == "" {
		return
	}
	if err := r.spans.Continue(r.tracePath()); err != nil {
		r.warn("%v", err)
	}
}

// openDir writes the resolved configuration into the run's folder and opens its
// metrics.
func (r *trainRun) openDir(resolved *configs.Resolved) error {
	dir := r.cfg.Run.Dir
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = r.lock(dir, true)
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		return err
	}
	if err == nil {
		err = resolved.WriteFile(dir)
	}
	if err == nil {
		err = report.ThisMachine().Write(dir)
	}
	if err != nil && !writable(err) {
		return usagef("run.dir is %q, which cannot be written: %w", dir, err)
	}
	if err != nil {
		return fmt.Errorf("run folder: %w", err)
	}
	metrics, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), r.firstLine())
	if err != nil {
		return err
	}
	r.metrics = metrics
	r.atEnd(func() { _ = metrics.Close() })
	return nil
}

func (r *trainRun) tracePath() string { return filepath.Join(r.cfg.Run.Dir, trace.File) }

// openControl listens on the control address, where there is one.
func (r *trainRun) openControl() error {
	c := &r.cfg.Control
	if c.Listen == "" {
		return nil
	}
	token, err := readToken("control.token_file", c.TokenFile)
	if err != nil {
		return err
	}
	live, err := control.New(c.Listen, token, r.cfg.Run.Dir)
	if err != nil {
		return usagef("control.listen: %w", err)
	}
	r.control = live
	r.atEnd(live.Close)
	r.warn("live page: http://%s/", live.Addr())
	return nil
}

// endless is the order of a run's prompts, safe for concurrent use: the entries
// of data.train by their weights, from a seed.
func endless(lists [][]rollout.Prompt, cfg *configs.Config, seed uint64) (func(place int) rollout.Prompt, error) {
	sizes := make([]int, len(lists))
	for i := range lists {
		sizes[i] = len(lists[i])
	}
	order, err := data.NewMix(sizes, cfg.Data.Weights, seed, cfg.Data.Shuffle)
	if err != nil {
		return nil, usageError{err}
	}
	all := slices.Concat(lists...)
	var mu sync.Mutex
	return func(place int) rollout.Prompt {
		mu.Lock()
		defer mu.Unlock()
		return all[order.At(place)]
	}, nil
}

// wire fits the parts to what the trainer needs of them.
func (r *trainRun) wire(lists [][]rollout.Prompt, sets []evaluate.Set, score *reward.Scorer) error {
	cfg := r.cfg
	held := evaluate.Deps{Fleet: r.in.Fleet(), Reward: score, Text: r.folder.text, Warn: r.warn,
		Progress: func(done, of int) { r.console.Progress(done, of, "prompts evaluated") }}
	r.sources = len(data.Sources(nil, slices.Concat(lists...)))
	prompt, err := endless(lists, cfg, cfg.Run.Seed)
	if err != nil {
		return err
	}
	spare, err := endless(lists, cfg, ^cfg.Run.Seed)
	if err != nil {
		return err
	}
	sample, err := produce(cfg, r.folder, r.in, r.spans.Lanes(producerRow), spare, score, r.warn)
	if err != nil {
		return err
	}
	r.deps = trainer.Deps{
		Models:  r.models,
		Prompt:  prompt,
		Produce: sample,
		Publish: r.in.Publish,
		Evaluate: func(ctx context.Context, step int) (map[string]float64, float64, error) {
			return r.evaluateStep(ctx, step, sets, held)
		},
		Files:    r.folder.files,
		Metrics:  r.metrics,
		Track:    r.spans.Track(trainerRow),
		Queue:    r.spans.Lanes(producerRow),
		Disk:     r.spans.Track("disk"),
		Progress: r.progress,
		Warn:     r.warn,
	}
	return nil
}

// firstLine is the first step whose line this process writes.
func (r *trainRun) firstLine() int {
	if r.state.Step == 0 || r.state.Pending != nil {
		return r.state.Step
	}
	return r.state.Step + 1
}

// openModels loads the policy and, where a run is resumed, its state. prompts is
// the number of those that are trained on.
func (r *trainRun) openModels(from string, prompts int) error {
	cfg := r.cfg
	run, err := r.identity(prompts)
	if err != nil {
		return err
	}
	if from != "" {
		if err := r.checkResume(from, run); err != nil {
			return err
		}
	}
	if r.dev, err = openDevice(cfg.Device.Kind, cfg.Device.Threads); err != nil {
		return err
	}
	r.atEnd(func() { _ = r.dev.Close() })
	policy, err := r.folder.weights(r.dev)
	if err != nil {
		return err
	}
	if r.models, err = trimodel.New(r.dev, policy, r.trimodelConfig()); err != nil {
		return err
	}
	start := policy.Checksum()
	if from != "" {
		if err := r.resume(from, start); err != nil {
			return err
		}
	}
	if r.state.Reference == "" {
		r.state.Reference = start
	}
	r.state.Seed = cfg.Run.Seed
	if r.task != "" {
		r.state.Task, r.state.Data, r.state.Prompts = run.Task, run.Data, run.Prompts
	}
	return nil
}

func (r *trainRun) trimodelConfig() trimodel.Config {
	c := trimodel.Config{Temperature: 1, Recompute: r.cfg.Train.Recompute}
	if r.task != sftTask {
		c.OldPolicy, c.Reference, c.Temperature = r.cfg.Loss.OldPolicy, r.cfg.Loss.Beta > 0, float32(r.cfg.Rollout.Temperature)
	}
	return c
}

// writePage writes the run's report; what ended the run is worse than its lack.
func (r *trainRun) writePage(ended error) {
	if _, _, err := page.Write(r.cfg.Run.Dir); err != nil && ended == nil {
		r.warn("%v", err)
	}
}

// train runs the loop and ends with what it wrote.
func (r *trainRun) train(ctx context.Context) error {
	cfg := r.cfg
	if cfg.Rollout.TopP < 1 || cfg.Rollout.TopK > 0 || cfg.Rollout.MinP > 0 {
		r.warn("top_p, top_k and min_p cut the distribution that is sampled, not the one that is trained: the run is not exactly on-policy")
	}
	t, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: cfg.Run.Steps, PromptsPerStep: cfg.Rollout.PromptsPerStep, MaxTokens: cfg.Rollout.MaxTokens,
		Refill: cfg.Rollout.Refill > 0, MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Loss: cfg.Loss, Optim: cfg.Train.Config,
		CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every,
		LogRollouts: cfg.Log.Rollouts, BySource: r.sources > 1, Devices: 1, PeakFLOPS: peakFLOPS(r.dev),
	}, r.state, r.deps)
	if err != nil {
		return err
	}
	restore := giveWay(1 + r.cfg.Inference.Instances)
	err = t.Run(ctx)
	restore()
	r.ended(t.Step(), err)
	if traceErr := r.spans.WriteFile(r.tracePath()); err == nil {
		err = traceErr // else there is something worse to report
	}
	r.writePage(err)
	r.console.Close()
	if errors.Is(err, trainer.ErrStopped) {
		return stopped(cfg.Run.Dir, t.Step())
	}
	if err != nil {
		return err
	}
	printer{r.std.out}.line("%s", cfg.Run.Dir)
	return nil
}
