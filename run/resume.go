package run

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

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/trainer"
)

// claimDir checks that the job may write to the run's folder, as trainer.Claim does, and
// that a new run overwrites none of its own configuration files. It locks the folder if
// an earlier run used it. from is the checkpoint to resume from, empty for a new run.
func (j *job) claimDir() (from string, err error) {
	dir, resume := j.cfg.Run.Dir, j.opts.Resume
	if err := j.lock(dir, false); err != nil {
		return "", err
	}
	from, err = trainer.Claim(dir, resume, j.warn)
	if err == nil && !resume {
		err = keepsWritten(j.resolved, j.opts.Files)
	}
	if err != nil {
		return "", usage.Wrap(err)
	}
	j.claimed = func() error {
		again, err := trainer.Claim(dir, resume, func(string, ...any) {})
		if err == nil && again != from {
			err = fmt.Errorf("run.dir is %q, where another process continued the run in the meantime; repeat -resume", dir)
		}
		return err
	}
	return from, nil
}

// lock locks the run's folder for this process, unless it is locked already. With create
// it then repeats the checks of claimDir, since another process may have written
// to the folder in between.
func (j *job) lock(dir string, create bool) error {
	if j.locked {
		return nil
	}
	unlock, held, err := trainer.Lock(dir, create)
	if errors.Is(err, trainer.ErrLocked) {
		return usage.Wrap(err)
	}
	if err != nil {
		return err
	}
	j.atEnd(unlock)
	j.locked = held
	if create {
		if err := j.claimed(); err != nil {
			return usage.Wrap(err)
		}
	}
	return nil
}

// keepsWritten returns an error if the resolved configuration would overwrite one of the
// run's own configuration files.
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
		return usage.Errorf("%s is a configuration file of this run and would be overwritten; set another run.dir or rename the file", path)
	}
	return nil
}

// writable reports whether err leaves open that the place can be written to: a full disk
// does, a missing permission does not.
func writable(err error) bool {
	return !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.ENOTDIR)
}

// identity returns the identity of the run that its checkpoints record. prompts is the
// number of prompts or demonstrations in its files.
func (j *job) identity(prompts int) (trainer.State, error) {
	id := trainer.State{Seed: j.cfg.Run.Seed, Task: j.task.name, Prompts: prompts}
	digest, err := data.Digest(j.task.files)
	if err != nil {
		return id, usage.Wrap(err)
	}
	id.Data = digest
	return id, nil
}

// checkResume returns an error if the checkpoint belongs to another run, or if the order
// of prompts has changed since.
func (j *job) checkResume(from string, id trainer.State) error {
	files := maps.Clone(j.folder.Files)
	delete(files, folder.GenerationFile) // stop settings; they may change
	if err := trainer.CheckResume(from, id, files, j.folder.Source); err != nil {
		return usage.Wrap(err)
	}
	state, err := trainer.ReadState(from)
	if err != nil {
		return usage.Wrap(err)
	}
	switch {
	case state.Data != "" && state.Data != id.Data:
		return usage.Errorf("resume: files of %s differ from those that %s was trained on; restore them, or start a new run with another run.dir", j.task.key, from)
	case state.Prompts > 0 && state.Prompts != id.Prompts:
		return usage.Errorf("resume: %s has %d usable prompts, expected %d as when the run started: a changed setting drops others", j.task.key, id.Prompts, state.Prompts)
	}
	return nil
}

// announce logs where a resumed run continues and which settings changed.
func (j *job) announce(from string) {
	if from == "" {
		return
	}
	changes, err := j.resolved.Changes(j.cfg.Run.Dir)
	if err != nil {
		j.warn("cannot compare the settings with those of the run: %v", err)
	} else if len(changes) > 0 {
		j.warn("resuming with changed settings: %s", strings.Join(changes, ", "))
	}
	j.warn("resuming after step %d from %s", j.state.Step, from)
	if j.state.Step >= j.task.steps && j.state.Pending == nil {
		j.warn("all %d steps of the run are done", j.task.steps)
	}
}

// stopped returns the error of a run that a signal stopped after a step.
func (j *job) stopped(step int) error {
	path := filepath.Join(j.cfg.Run.Dir, configs.RunFile)
	return StoppedError{fmt.Sprintf("stopped at step %d; resume with: easyrl %s %s -resume", step, j.task.name, path)}
}
