package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/run/origin"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/run/recorded"
	"github.com/easyrl/easyrl/trainer"
)

// Replayed names the folders and files of a replay.
type Replayed struct {
	// Model is a model folder. If it is a checkpoint of a run like easyrl train, its
	// optimizer state continues.
	Model     string
	Rollouts  string // file of groups
	Reference string // folder of the reference model; empty for Model
	Out       string // new or empty folder
}

// Replay takes one optimizer step on recorded groups, without sampling. It writes the
// stepped model, its optimizer state and the step's metrics.
func Replay(ctx context.Context, resolved *configs.Resolved, of Replayed, opts Options) (err error) {
	if of.Reference != "" && resolved.Loss.Beta == 0 {
		return usage.Errorf("-reference is set but loss.beta is 0, expected more than 0: the loss uses no reference")
	}
	if err := CheckOut(of.Out); err != nil {
		return usage.Wrap(err)
	}
	j := replay{newJob(resolved, opts, task{}), of}
	defer j.close()
	if j.folder, err = origin.Open(j.cfg, of.Model); err != nil {
		return err
	}
	if err := ranks.Check(j.cfg, j.folder); err != nil {
		return err
	}
	groups, err := trainer.ReadGroups(of.Rollouts, j.folder.Shape)
	if err != nil {
		return usage.Wrap(err)
	}
	if line := report.CutOff(of.Rollouts); line != "" {
		j.warn("%s", line)
	}
	if n := resolved.Train.Minibatches; n > len(groups) {
		return usage.Errorf("train.minibatches is %d, expected %d at most, the number of groups in %s", n, len(groups), of.Rollouts)
	}
	return j.stepTo(ctx, groups)
}

// replay is a job that takes one step from recorded groups.
type replay struct {
	*job
	of Replayed
}

// CheckOut returns an error if the output folder has content.
func CheckOut(out string) error {
	entries, err := os.ReadDir(out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("-out %s is not empty, expected a new folder", out)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-out %s cannot be read as a folder: %w", out, err)
	}
	return nil
}

// stepTo takes the step in a temporary run folder beside -out and moves its checkpoint there.
func (j *replay) stepTo(ctx context.Context, groups []rollout.Group) error {
	path, err := filepath.Abs(j.of.Out)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		j.cfg.Run.Dir, err = os.MkdirTemp(filepath.Dir(path), ".replay-")
	}
	if err != nil {
		return usage.Errorf("replay: create -out: %w", err)
	}
	defer os.RemoveAll(j.cfg.Run.Dir) //nolint:errcheck // leftovers are harmless
	stepped, err := j.takeStep(ctx, groups)
	if errors.Is(err, trainer.ErrStopped) {
		return context.Canceled
	}
	if err == nil {
		err = os.Rename(filepath.Join(j.cfg.Run.Dir, report.MetricsFile), filepath.Join(stepped, report.MetricsFile))
	}
	if err != nil {
		return err
	}
	j.ranks.End()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return fmt.Errorf("replay: %w", err)
	}
	if err := os.Rename(stepped, path); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	_, _ = fmt.Fprintln(j.opts.Out, j.of.Out)
	return nil
}

// scheduleSteps returns the number of steps that the learning-rate schedule spans:
// run.steps if set, otherwise the checkpoint's.
func (j *replay) scheduleSteps(step int) (int, error) {
	set := 0
	if j.resolved.Origin("run.steps").File != "" {
		set = j.cfg.Run.Steps
	}
	switch {
	case set > 0 && set < step:
		return 0, usage.Errorf("run.steps is %d, expected at least %d, the step to take", set, step)
	case set > 0:
		return set, nil
	case j.state.Total >= step:
		return j.state.Total, nil
	}
	steps := max(j.cfg.Run.Steps, step)
	if j.cfg.Train.Schedule != optim.Constant {
		j.warn("the length of the run is unknown, so train.schedule = %q spans %d steps. Set it with -set run.steps=N.", j.cfg.Train.Schedule, steps)
	}
	return steps, nil
}

// load loads the model and, if it is a checkpoint of reinforcement learning, its state.
// Moments of another kind of run estimate other gradients, so they are not continued.
func (j *replay) load(ctx context.Context) error {
	from := ""
	if _, err := os.Stat(filepath.Join(j.of.Model, "trainer")); err == nil {
		state, err := trainer.ReadState(j.of.Model)
		if err != nil {
			return usage.Wrap(err)
		}
		if state.Task == "" || state.Task == trainTask {
			from, j.cfg.Run.Seed = j.of.Model, state.Seed
		} else {
			j.warn("%s was written by easyrl %s: replay starts from its weights, and the optimizer state from zero", j.of.Model, state.Task)
		}
	}
	if err := j.openDevice(); err != nil {
		return err
	}
	reference, err := j.reference()
	if err != nil {
		return err
	}
	_, start, err := j.job.load(ctx, from, reference)
	if err != nil {
		return err
	}
	switch began := j.state.Reference; {
	case began == "":
		j.state.Reference = start
	case began != start && j.of.Reference != "":
		return usage.Errorf("-reference %s is not the model that the run of %s started from: its weights differ", j.of.Reference, from)
	case began != start && j.cfg.Loss.Beta > 0:
		return usage.Errorf("replay: loss.beta is %v but %s lacks the reference weights of its run; add -reference DIR, the model that the run started from",
			j.cfg.Loss.Beta, from)
	}
	j.state.Seed, j.state.Pending = j.cfg.Run.Seed, nil
	return nil
}

// reference opens the folder of -reference. It returns nil without one.
func (j *replay) reference() (*folder.Folder, error) {
	if j.of.Reference == "" {
		return nil, nil //nolint:nilnil // see above
	}
	f, err := origin.Open(j.cfg, j.of.Reference)
	if err != nil {
		return nil, usage.Prefix("-reference", err)
	}
	if folder.Fingerprint(f.Shape) != folder.Fingerprint(j.folder.Shape) {
		return nil, usage.Errorf("-reference: config.json in %s describes another model than %s", j.of.Reference, j.of.Model)
	}
	return f, nil
}

// takeStep takes the step in the run's folder and returns the path of its checkpoint.
func (j *replay) takeStep(ctx context.Context, groups []rollout.Group) (stepped string, err error) {
	cfg, recorded := j.cfg, recorded.New(groups)
	r := &cfg.Rollout // as in the run, for modelsConfig
	r.PromptsPerStep, r.GroupSize, r.MaxTokens = recorded.Prompts, recorded.Size, max(r.MaxTokens, recorded.Longest)
	if err := j.load(ctx); err != nil {
		return "", err
	}
	if j.metrics, err = report.OpenMetrics(filepath.Join(cfg.Run.Dir, report.MetricsFile), 0); err != nil {
		return "", err
	}
	defer j.metrics.Close() //nolint:errcheck // its line is already written
	step := j.state.Step + 1
	steps, err := j.scheduleSteps(step)
	if err != nil {
		return "", err
	}
	t, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: step, ScheduleSteps: steps, PromptsPerStep: recorded.Prompts,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Optim: cfg.Train.Config,
		CheckpointKeep: 1, MaxNonFinite: 1,
	}, j.state, trainer.Deps{
		Models: j.models, Files: j.folder.Files, Metrics: j.metrics, Warn: j.warn,
		Progress: func(_ int, values report.Values) { _, _ = fmt.Fprintln(j.opts.Log, report.Summary(values)) },
	}, trainer.Rollouts{
		Loss: cfg.Loss, MaxTokens: r.MaxTokens, Cores: func() int { return cores.Busy(cfg.Device.Threads) },
		Publish: func(context.Context, inference.Weights) error { return nil },
		Prompt:  func(int) rollout.Prompt { return rollout.Prompt{} },
		Produce: func(context.Context, rollout.Batch) rollout.Stream { return recorded.Start(step) },
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(trainer.CheckpointRoot(cfg.Run.Dir), checkpoint.StepName(step)), t.Run(ctx)
}
