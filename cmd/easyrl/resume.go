package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/trainer"
)

// What a run does, as its checkpoints name it; a step that is replayed goes on
// with either.
const (
	trainTask = "train"
	sftTask   = "sft"
)

// claimDir is trainer.Claim for a configuration read from files, none of which a
// new run replaces. Where the folder was of a run before, it is this run's alone
// from here on.
func (r *trainRun) claimDir(resolved *configs.Resolved, files []string, resume bool) (from string, err error) {
	if err := r.lock(resolved.Run.Dir, false); err != nil {
		return "", err
	}
	from, err = trainer.Claim(resolved.Run.Dir, resume, r.warn)
	if err == nil && !resume {
		err = keepsWritten(resolved, files)
	}
	if err != nil {
		return "", usageError{err}
	}
	r.claimed = func() error {
		again, err := trainer.Claim(resolved.Run.Dir, resume, func(string, ...any) {})
		if err == nil && again != from {
			err = fmt.Errorf("run.dir is %q, where another process went on meanwhile: resume again", resolved.Run.Dir)
		}
		return err
	}
	return from, nil
}

// lock takes the run's folder for this process, unless it has it. What another
// process did before is looked at again.
func (r *trainRun) lock(dir string, create bool) error {
	if r.locked {
		return nil
	}
	unlock, held, err := trainer.Lock(dir, create)
	if errors.Is(err, trainer.ErrLocked) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	r.atEnd(unlock)
	r.locked = held
	if create {
		if err := r.claimed(); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// keepsWritten refuses a run that would replace one of its own files by the
// resolved configuration.
func keepsWritten(resolved *configs.Resolved, files []string) error {
	path := filepath.Join(resolved.Run.Dir, configs.RunFile)
	target, err := os.Stat(path)
	if err != nil || resolved.Same(path) {
		return nil
	}
	isTarget := func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && os.SameFile(info, target)
	}
	if slices.ContainsFunc(files, isTarget) {
		return usagef("%s would be replaced by the resolved run: set another run.dir, or rename it", path)
	}
	return nil
}

// writable says whether err is about a place that cannot be written at all,
// rather than about one that is full.
func writable(err error) bool {
	return !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.ENOTDIR)
}

// checkResume refuses a checkpoint of another run than the one configured.
func (r *trainRun) checkResume(from string) error {
	if r.task == "" {
		return nil // replayed, not resumed
	}
	files := maps.Clone(r.folder.files)
	delete(files, generationFile) // says when to stop, and may change
	if err := trainer.CheckResume(from, trainer.State{Seed: r.cfg.Run.Seed, Task: r.task}, files, r.folder.source); err != nil {
		return usageError{err}
	}
	return nil
}

// resume loads the state of a checkpoint into the models. start is the checksum
// of the weights that the models were made with.
func (r *trainRun) resume(from, start string) error {
	var err error
	if r.state, err = trainer.Resume(from, r.models); err != nil {
		return usageError{err}
	}
	began := r.state.Reference
	if began == "" || began == start {
		return nil
	}
	if r.task == "" && r.models.Reference == nil {
		return nil // replayed: the model given is the checkpoint's own
	}
	if r.task == "" {
		return usagef("replay: loss.beta is %v, and %s lacks the reference weights that its run began with", r.cfg.Loss.Beta, from)
	}
	return usagef("resume: the starting weights of %s are not those that the run began with: another model", r.folder.source)
}

// announce says where a resumed run goes on.
func (r *trainRun) announce(from string, steps int) {
	if from == "" {
		return
	}
	r.warn("resuming after step %d from %s", r.state.Step, from)
	if r.state.Step >= steps && r.state.Pending == nil {
		r.warn("the run has %d steps: nothing is left to do", steps)
	}
}

// stopped is the end of a run that a signal stopped.
func stopped(dir string, step int) error {
	return stoppedError{"checkpoint " + filepath.Join(trainer.CheckpointRoot(dir), checkpoint.StepName(step))}
}

// inFile puts a name before each of joined errors.
func inFile(name string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // errors.Join's own form is meant
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, inFile(name, e))
	}
	return errors.Join(errs...)
}
