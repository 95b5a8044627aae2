package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
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

// identity is what the checkpoints of the run say of it, whose files give a number
// of prompts or demonstrations.
func (r *trainRun) identity(prompts int) (trainer.State, error) {
	run := trainer.State{Seed: r.cfg.Run.Seed, Task: r.task, Prompts: prompts}
	if r.task == "" {
		return run, nil // replayed: the groups are given
	}
	_, files := r.trainedOn()
	digest, err := data.Digest(files)
	if err != nil {
		return run, usageError{err}
	}
	run.Data = digest
	return run, nil
}

// trainedOn are the files that the run trains on and their key.
func (r *trainRun) trainedOn() (key string, files []string) {
	if r.task == sftTask {
		return "sft.data", r.cfg.SFT.Data
	}
	return "data.train", r.cfg.Data.Train
}

// checkData refuses to go on in another order of prompts than that of the run.
func (r *trainRun) checkData(from string, run trainer.State) error {
	state, err := trainer.ReadState(from)
	if err != nil {
		return usageError{err}
	}
	key, _ := r.trainedOn()
	switch {
	case state.Data != "" && state.Data != run.Data:
		return usagef("resume: the files of %s have other content than those that %s trained on: its place in them means nothing, expected the same, or another run.dir", key, from)
	case state.Prompts > 0 && state.Prompts != run.Prompts:
		return usagef("resume: %s gives %d prompts, expected %d as the run began: settings leave out others", key, run.Prompts, state.Prompts)
	}
	return nil
}

// checkResume refuses a checkpoint of another run than the one configured.
func (r *trainRun) checkResume(from string, run trainer.State) error {
	if r.task == "" {
		return nil // replayed, not resumed
	}
	files := maps.Clone(r.folder.files)
	delete(files, generationFile) // says when to stop, and may change
	if err := trainer.CheckResume(from, run, files, r.folder.source); err != nil {
		return usageError{err}
	}
	return r.checkData(from, run)
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

// announce says where a resumed run goes on, and with which other settings.
func (r *trainRun) announce(from string, steps int, resolved *configs.Resolved) {
	if from == "" {
		return
	}
	changes, err := resolved.Changes(r.cfg.Run.Dir)
	if err != nil {
		r.warn("the settings that the run had cannot be compared: %v", err)
	} else if len(changes) > 0 {
		r.warn("resuming with other settings: %s", strings.Join(changes, ", "))
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
