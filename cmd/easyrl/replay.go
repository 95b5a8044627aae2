package main

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
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
)

func replayVerb(std streams) verb {
	v := verb{
		name:    "replay",
		summary: "Take one optimizer step from recorded groups, without sampling.",
		example: "easyrl replay -model DIR -rollouts runs/quickstart/grpo/rollouts/step-000001.jsonl -out stepped -set train.lr=1e-4",
		flags:   newFlags(),
	}
	dir := v.flags.String("model", "", "`DIR` of a Hugging Face folder; a checkpoint's optimizer state goes on, else it begins anew")
	file := v.flags.String("rollouts", "", "`FILE` of groups, one a line, as a run's rollouts/ has them")
	out := v.flags.String("out", "", "`DIR` to write: the stepped model, its optimizer state and the step's metrics.jsonl")
	set := addSettings(v.flags)
	v.run = func(ctx context.Context, args []string) error {
		if len(args) > 0 || *dir == "" || *file == "" || *out == "" {
			return usagef("replay: expected -model DIR, -rollouts FILE, -out DIR and no other argument (see easyrl replay -h)")
		}
		resolved, err := configs.Load(nil, *set)
		if err == nil {
			err = resolved.Validate(configs.ReplayTask)
		}
		if err == nil {
			err = oneRank(&resolved.Config)
		}
		if err == nil {
			err = checkOut(*out)
		}
		if err != nil {
			return usageError{err}
		}
		r := &trainRun{cfg: &resolved.Config, std: std}
		defer r.close()
		if r.folder, err = openFolder(*dir); err != nil {
			return err
		}
		groups, err := trainer.ReadGroups(*file, r.folder.shape)
		if err != nil {
			return usageError{err}
		}
		if n := resolved.Train.Minibatches; n > len(groups) {
			return usagef("train.minibatches is %d, expected %d at most: so many groups are in %s", n, len(groups), *file)
		}
		var steps int
		if resolved.Origin("run.steps").File != "" {
			steps = resolved.Run.Steps
		}
		return r.replayTo(ctx, *out, *dir, groups, steps)
	}
	return v
}

// checkOut refuses a folder to write that holds something.
func checkOut(out string) error {
	entries, err := os.ReadDir(out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("-out %s is not empty, expected a new folder", out)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-out %s cannot be a folder: %w", out, err)
	}
	return nil
}

// replayTo takes the step as a run of its own beside out, of which the
// checkpoint is kept. steps is the length of the run that it is of, 0 where it is
// not set.
func (r *trainRun) replayTo(ctx context.Context, out, model string, groups []rollout.Group, steps int) error {
	path, err := filepath.Abs(out)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		r.cfg.Run.Dir, err = os.MkdirTemp(filepath.Dir(path), ".replay-")
	}
	if err != nil {
		return usagef("replay: -out cannot be written: %w", err)
	}
	defer os.RemoveAll(r.cfg.Run.Dir) //nolint:errcheck // what is left of it is in nobody's way
	stepped, err := r.replay(ctx, model, groups, steps)
	if errors.Is(err, trainer.ErrStopped) {
		return context.Canceled
	}
	if err == nil {
		err = os.Rename(filepath.Join(r.cfg.Run.Dir, report.MetricsFile), filepath.Join(stepped, report.MetricsFile))
	}
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty folder
		return fmt.Errorf("replay: %w", err)
	}
	if err := os.Rename(stepped, path); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	printer{r.std.out}.line("%s", out)
	return nil
}

// recorded is a stream of groups that are there already.
type recorded chan rollout.Group

func (r recorded) Groups() <-chan rollout.Group               { return r }
func (r recorded) Wait() (rollout.Stats, error)               { return rollout.Stats{}, nil }
func publishNothing(context.Context, inference.Weights) error { return nil }

// asStep is groups as those that the given step samples, the model given being
// the one that sampled them, and the length of the longest response.
func asStep(groups []rollout.Group, step int) (stream recorded, longest int) {
	stream = make(recorded, len(groups))
	for _, g := range groups {
		for i := range g.Responses {
			g.Responses[i].Version = int64(step)
			longest = max(longest, len(g.Responses[i].IDs))
		}
		g.Step, g.Version = step, int64(step)
		stream <- g
	}
	close(stream)
	return stream, longest
}

// runSteps is the length of the run that a step is of, over which its learning
// rate changes: as set, or else as the checkpoint has it.
func (r *trainRun) runSteps(set, step int) (int, error) {
	switch {
	case set > 0 && set < step:
		return 0, usagef("run.steps is %d, expected %d at least: that is the step to take", set, step)
	case set > 0:
		return set, nil
	case r.state.Total >= step:
		return r.state.Total, nil
	}
	steps := max(r.cfg.Run.Steps, step)
	if r.cfg.Train.Schedule != optim.Constant {
		r.warn("the length of the run is not known: train.schedule = %q spans %d steps, or as -set run.steps=… says", r.cfg.Train.Schedule, steps)
	}
	return steps, nil
}

// replay takes the step in the run's folder and returns its checkpoint.
func (r *trainRun) replay(ctx context.Context, model string, groups []rollout.Group, steps int) (stepped string, err error) {
	cfg, from := r.cfg, ""
	if _, err := os.Stat(filepath.Join(model, "trainer")); err == nil {
		from = model
		state, err := trainer.ReadState(from)
		if err != nil {
			return "", usageError{err}
		}
		cfg.Run.Seed = state.Seed
	}
	if err := r.openModels(from, 0); err != nil {
		return "", err
	}
	if r.metrics, err = report.OpenMetrics(filepath.Join(cfg.Run.Dir, report.MetricsFile), 0); err != nil {
		return "", err
	}
	defer r.metrics.Close() //nolint:errcheck // its line was written
	r.state.Pending = nil
	step := r.state.Step + 1
	if steps, err = r.runSteps(steps, step); err != nil {
		return "", err
	}
	stream, longest := asStep(groups, step)
	t, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: step, ScheduleSteps: steps, PromptsPerStep: len(groups), MaxTokens: longest,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Loss: cfg.Loss, Optim: cfg.Train.Config,
		CheckpointKeep: 1, Devices: 1, MaxNonFinite: 1,
	}, r.state, trainer.Deps{
		Models: r.models, Files: r.folder.files, Metrics: r.metrics, Warn: r.warn, Publish: publishNothing,
		Prompt:   func(int) rollout.Prompt { return rollout.Prompt{} },
		Produce:  func(context.Context, rollout.Batch) rollout.Stream { return stream },
		Progress: func(_ int, values report.Values) { printer{r.std.err}.line("%s", report.Summary(values)) },
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(trainer.CheckpointRoot(cfg.Run.Dir), checkpoint.StepName(step)), t.Run(ctx)
}
