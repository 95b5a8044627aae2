package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/trainer"
)

// Audited names a recorded step.
type Audited struct {
	Run       string // the run's folder
	Step      int
	Reference string // folder of the model that the run started from; empty for the one in the run's settings
	Threads   int    // CPU threads; 0 uses all cores
	// Leaves is the number of leaves of the step to recompute, chosen with Seed; 0 recomputes all of the step.
	Leaves int
	Seed   uint64
}

// DifferenceError says how what an audit recomputed differs from what the run recorded.
type DifferenceError struct{ text string }

// Error returns what differs.
func (e DifferenceError) Error() string { return e.text }

// differs returns a DifferenceError.
func differs(format string, args ...any) error { return DifferenceError{fmt.Sprintf(format, args...)} }

// Audit recomputes a recorded step on this machine's CPU, from the last checkpoint before it and the recorded groups,
// and compares what it recomputes with the run's record: log-probabilities, advantages, metrics, and the checksum of
// the weights after the step. With of.Leaves it compares a part of the step. It writes the result to opts.Out and
// nothing to the run's folder. It returns a DifferenceError if anything differs, and a usage error for a step that
// cannot be audited.
func Audit(ctx context.Context, of Audited, opts Options) error {
	a := &audit{of: of, opts: opts}
	if err := a.read(); err != nil {
		return err
	}
	a.result = fmt.Sprintf("step %d: same weights, checksum %s", of.Step, a.record[of.Step].Checksum)
	var err error
	if a.work, err = os.MkdirTemp("", "easyrl-audit-"); err != nil {
		return err
	}
	defer os.RemoveAll(a.work) //nolint:errcheck // leftovers are harmless
	err = a.audit(ctx)
	var difference DifferenceError
	var refused usage.Error
	switch {
	case err == nil:
		_, err = fmt.Fprintln(opts.Out, a.result)
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &difference): // without the trainer's context
		return difference
	case errors.As(err, &refused):
		return refused
	}
	return err
}

// audit recomputes a step.
type audit struct {
	of     Audited
	opts   Options
	record map[int]report.Line // the run's metrics by step
	start  string              // recorded checksum of the weights that the run started from; empty if unknown
	work   string              // temporary folder
	result string              // what the audit found to be the same
}

func (a *audit) note(format string, args ...any) {
	notice.Print(a.opts.Log, notice.Progress, format, args...)
}

// root returns the folder of the run's checkpoints.
func (a *audit) root() string { return trainer.CheckpointRoot(a.of.Run) }

// groups returns the path of a step's recorded groups.
func (a *audit) groups(step int) string {
	return filepath.Join(a.of.Run, "rollouts", checkpoint.StepName(step)+".jsonl")
}

// read reads the run's record and refuses a step that it does not have.
func (a *audit) read() error {
	a.record = map[int]report.Line{}
	last := 0
	err := report.EachLine(filepath.Join(a.of.Run, report.MetricsFile), func(l report.Line) error {
		step := int(l.Values["step"])
		a.record[step], last = l, max(last, step)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return usage.Errorf("%s is not the folder of a run, expected one with %s", a.of.Run, report.MetricsFile)
	}
	if err != nil {
		return usage.Wrap(err)
	}
	line, found := a.record[a.of.Step]
	switch {
	case !found || a.of.Step < 1:
		return usage.Errorf("step is %d, expected 1 to %d, the last step in %s", a.of.Step, last,
			filepath.Join(a.of.Run, report.MetricsFile))
	case line.Checksum == "":
		return usage.Errorf("%s records no %s of step %d: easyrl sft or an older easyrl wrote it",
			filepath.Join(a.of.Run, report.MetricsFile), report.ChecksumName, a.of.Step)
	}
	return a.readStart()
}

// readStart sets start to what step 0 records, or else the newest checkpoint.
func (a *audit) readStart() error {
	a.start = a.record[0].Checksum
	dir, _, err := checkpoint.Before(a.root(), math.MaxInt)
	if a.start != "" || dir == "" || err != nil {
		return err
	}
	if state, err := trainer.ReadState(dir); err == nil { // a damaged checkpoint is reported if the audit needs it
		a.start = state.Reference
	}
	return nil
}

// before returns the recorded checksum of the weights before a step; empty if there is none.
func (a *audit) before(step int) string {
	if step == 1 {
		return a.start
	}
	return a.record[step-1].Checksum
}

// audit recomputes the step from the last checkpoint before it, or else from the model that the run started from.
func (a *audit) audit(ctx context.Context) error {
	from, at, err := checkpoint.Before(a.root(), a.of.Step)
	if err != nil {
		return err
	}
	if from != "" {
		if err := a.verify(from, at); err != nil {
			return a.named(ctx, from, at, err)
		}
	}
	_, err = a.recompute(ctx, from, at, a.of.Step, false)
	var altered alteredStart
	if !errors.As(err, &altered) {
		return err
	}
	if from == "" {
		return differs("the model is not the one that the run started from: %v", altered)
	}
	return a.named(ctx, from, at, differs("%s: %v", from, altered))
}

// verify returns a DifferenceError if the files of a checkpoint are not those that the run wrote.
func (a *audit) verify(dir string, step int) error {
	if err := checkpoint.Verify(dir); err != nil {
		return differs("%v", err)
	}
	state, err := trainer.ReadState(dir)
	switch {
	case err != nil:
		return differs("%v", err)
	case state.Step != step:
		return differs("%s is a checkpoint after step %d, expected step %d", dir, state.Step, step)
	case state.NumericsVersion != npu.NumericsVersion:
		return usage.Errorf("the run was trained in %s, and this easyrl has version %d of the numerics: "+
			"expected the same", arithmeticName(state.Arithmetic()), npu.NumericsVersion)
	}
	return nil
}

// named adds to the difference of a checkpoint which of its values differ. It recomputes them from an earlier
// checkpoint or the model that the run started from, if it can.
func (a *audit) named(ctx context.Context, from string, at int, difference error) error {
	if !errors.As(difference, new(DifferenceError)) {
		return difference
	}
	earlier, before, err := checkpoint.Before(a.root(), at)
	if err == nil && earlier != "" {
		err = a.verify(earlier, before)
	}
	if err != nil {
		return difference
	}
	a.note("%v", difference)
	a.note("recomputing steps %d to %d to find what differs in %s", before+1, at, from)
	dir, err := a.recompute(ctx, earlier, before, at, true)
	if err != nil {
		return differs("%v; what differs there is unknown: %v", difference, err)
	}
	found, err := compareCheckpoints(from, dir)
	if err != nil || found == "" {
		return difference
	}
	return differs("%v; %s", difference, found)
}

// recompute takes the steps after the checkpoint from, which holds at steps, up to last. If from is empty, it starts
// with the model that the run started from. With save it returns the folder of a checkpoint of the last step.
func (a *audit) recompute(ctx context.Context, from string, at, last int, save bool) (dir string, err error) {
	for step := at + 1; step <= last; step++ {
		if _, err := os.Stat(a.groups(step)); err != nil {
			return "", usage.Errorf("an audit needs the recorded groups of step %d (log.rollouts): %w", step, err)
		}
	}
	dir = from
	for first := at + 1; first <= last; {
		end, err := a.sameSettings(first, last)
		if err != nil {
			return "", err
		}
		if dir, err = a.take(ctx, dir, first, end, save || end < last); err != nil {
			return "", err
		}
		first = end + 1
	}
	return dir, nil
}

// sameSettings returns the last step up to limit that was taken with the settings of step first.
func (a *audit) sameSettings(first, limit int) (last int, err error) {
	file, err := settingsOf(a.of.Run, first)
	for last = first; err == nil && last < limit; last++ {
		var next string
		if next, err = settingsOf(a.of.Run, last+1); next != file {
			return last, err
		}
	}
	return last, err
}

// take takes steps of one file of settings. dir is the checkpoint before them, or empty for the model that the run
// started from. With save take returns the folder of a checkpoint of the last step.
func (a *audit) take(ctx context.Context, dir string, first, last int, save bool) (saved string, err error) {
	of := Replayed{Model: dir, Rollouts: a.groups(first), Run: a.of.Run}
	resolved, file, err := of.settings(first,
		[]string{fmt.Sprintf("device.kind=%q", configs.CPU), fmt.Sprintf("device.threads=%d", a.of.Threads)})
	if err != nil {
		return "", err
	}
	if resolved.Train.Backend == configs.PyTorch {
		return "", usage.Errorf("%s: train.backend is %q: PyTorch ranks do not compute the same bits everywhere, "+
			"expected %q for an audit", file, configs.PyTorch, configs.EasyRL)
	}
	resolved.Inference.Instances = 0 // all threads are the trainer's
	j := &replay{job: newJob(resolved, a.opts, task{}), of: of, file: file}
	defer j.close()
	if err := a.open(j); err != nil {
		return "", err
	}
	if err := a.checkSettings(j, first); err != nil {
		return "", err
	}
	if j.cfg.Run.Dir, err = os.MkdirTemp(a.work, "steps-"); err != nil {
		return "", err
	}
	t := &recomputed{replay: j, audit: a, first: first}
	if err := t.take(ctx, last, save); err != nil {
		return "", err
	}
	return filepath.Join(trainer.CheckpointRoot(j.cfg.Run.Dir), checkpoint.StepName(last)), nil
}

// open opens the model with which j's steps begin.
func (a *audit) open(j *replay) (err error) {
	if j.of.Model != "" {
		if j.state, err = trainer.ReadState(j.of.Model); err != nil {
			return usage.Wrap(err)
		}
		j.from = j.of.Model
		if was := j.state.Arithmetic(); was != j.cfg.Identity() {
			return differs("%s: device.numerics is %s, expected %s as in %s", j.file, j.cfg.Identity(),
				arithmeticName(was), j.from)
		}
		if j.needsStart() != "" {
			j.of.Reference = a.of.Reference
		}
		j.folder, err = openFolder(j.cfg, j.from)
	} else {
		if a.of.Reference != "" {
			j.cfg.Model = configs.Model{Path: a.of.Reference}
		}
		for _, path := range []*string{&j.cfg.Model.Path, &j.cfg.Model.Init.Config} {
			*path = j.find(*path)
		}
		if j.folder, err = openModel(j.cfg); err != nil {
			err = usage.Errorf("no checkpoint is before the step, so the audit needs the model that the run "+
				"started from; add -reference DIR, or audit where the run was started: %w", err)
		}
	}
	if err != nil {
		return err
	}
	return j.prepare()
}

// checkSettings returns a DifferenceError if j's settings are not those with which the run took a step, according to
// a checkpoint that was written with them. Only settings that decide the weights count.
func (a *audit) checkSettings(j *replay, step int) error {
	dir, recorded, err := a.recordedSettings(j.file, step)
	if err != nil || recorded == nil {
		return err
	}
	values := j.resolved.Shown("")
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		was, known := recorded[key]
		if known && was != values[key] && j.repeats(key) {
			faults = append(faults, fmt.Sprintf("%s is %s, expected %s", key, values[key], was))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return differs("%s: %s, as in %s", j.file, joined(faults), dir)
}

// recordedSettings returns the settings in a checkpoint that the run wrote while file had its settings: the first
// one after a step, or else the last one before it. dir is the checkpoint's folder. recorded is nil if there is none.
func (a *audit) recordedSettings(file string, step int) (dir string, recorded map[string]string, err error) {
	for at := math.MaxInt; ; {
		folder, number, err := checkpoint.Before(a.root(), at)
		if err != nil || folder == "" || recorded != nil && number < step {
			return dir, recorded, err
		}
		at = number
		its, err := settingsOf(a.of.Run, number)
		if err != nil {
			return "", nil, err
		}
		if state, err := trainer.ReadState(folder); err == nil && its == file && state.Settings != nil {
			dir, recorded = folder, state.Settings
		}
	}
}

// repeats reports whether a step is repeated only with the same value of a key.
func (j *replay) repeats(key string) bool {
	switch key {
	case "device.numerics", "run.seed", "rollout.prompts_per_step", "rollout.group_size":
		return true
	case "run.steps":
		return j.cfg.Train.Schedule != optim.Constant
	}
	return j.decides(key)
}
