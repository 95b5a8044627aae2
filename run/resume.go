package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/internal/writable"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
)

// claimDir checks that the run may write to its folder (trainer.Claim), that the folder is writable, and that a
// new run overwrites none of its own configuration files. It locks the folder if an earlier run used it. from is
// the checkpoint to resume from, empty for a new run.
func (p *preparation) claimDir() (from string, err error) {
	dir, resume := p.cfg.Run.Dir, p.opts.Resume
	if err := p.lock(dir, false); err != nil {
		return "", err
	}
	from, err = trainer.Claim(dir, resume, p.warn)
	if err == nil && !resume {
		err = checkOverwrite(p.resolved, p.opts.Files)
	}
	if err != nil {
		return "", usage.Wrap(err)
	}
	// An earlier process of the run may have left folders and files there.
	folders, files := []string{"checkpoints", "rollouts"}, []string{"lock", report.MetricsFile}
	if err := writable.Contents(dir, folders, files); err != nil {
		return "", unwritable(dir, err)
	}
	if resume {
		for _, line := range report.Damage(dir) {
			p.warn("%s", line)
		}
		if _, err := report.ReadWarnings(filepath.Join(dir, report.WarningsFile)); err != nil {
			return "", err
		}
	}
	p.claimed = func() error {
		again, err := trainer.Claim(dir, resume, func(string, ...any) {})
		if err == nil && again != from {
			err = fmt.Errorf("run.dir is %q, where another process continued the run in the meantime; repeat -resume",
				dir)
		}
		return err
	}
	return from, nil
}

// unwritable returns the error of a run whose folder cannot be written to. A full disk is a
// failure; a place where nothing can be written is a usage error.
func unwritable(dir string, err error) error {
	if writable.Refused(err) {
		return usage.Errorf("run.dir is %q, expected a writable folder: %w", dir, err)
	}
	return fmt.Errorf("write to run.dir: %w", err)
}

// lock locks the run's folder for this process, unless this process has locked it already. Without create it only
// locks a folder that an earlier run used. With create it also repeats the checks of claimDir, since another
// process may have written to the folder since.
func (p *preparation) lock(dir string, create bool) error {
	if p.locked {
		return nil
	}
	unlock, locked, err := trainer.Lock(dir, create)
	if errors.Is(err, trainer.ErrLocked) || errors.Is(err, filetype.ErrIrregular) {
		return usage.Wrap(err)
	}
	if err != nil {
		return err
	}
	p.atEnd(unlock)
	p.locked = locked
	if create {
		if err := p.claimed(); err != nil {
			return usage.Wrap(err)
		}
	}
	return nil
}

// checkOverwrite returns an error if writing the resolved configuration would overwrite a different configuration
// file of the run.
func checkOverwrite(resolved *configs.Resolved, files []string) error {
	path := filepath.Join(resolved.Run.Dir, configs.RunFile)
	if !resolved.Same(path) && writable.Among(path, files) {
		return usage.Errorf(
			"%s is a configuration file of this run and would be overwritten; set another run.dir or rename the file",
			path)
	}
	return nil
}

// identify sets the identity of the run and checks that the checkpoint to resume from
// belongs to it.
func (p *preparation) identify() error {
	p.identity = trainer.State{Seed: p.cfg.Run.Seed, Task: p.task.name, Prompts: p.examples}
	digest, err := data.Digest(p.task.files)
	if err != nil {
		return usage.Wrap(err)
	}
	p.identity.Data = digest
	id, err := trainer.ReadIdentity(p.cfg.Run.Dir, p.opts.Resume)
	if err != nil {
		return usage.Wrap(err)
	}
	p.id = id
	if p.from != "" {
		err = p.checkResume()
	}
	p.identity.Run = p.id.Run
	return err
}

// checkResume returns an error if the checkpoint to resume from belongs to another run, or if the training data,
// and with it the order of prompts, has changed since.
func (p *preparation) checkResume() error {
	from, id := p.from, &p.identity
	state, err := trainer.ReadState(from)
	if err != nil {
		return usage.Wrap(err)
	}
	switch {
	case state.Run == "":
		p.warn("%s does not say which run wrote it; resuming as if it was the run of this folder", from)
	case state.Run != p.id.Run:
		return usage.Errorf("resume: %s was written by run %s, expected run %s of this folder. "+
			"Move it away to continue this run, or continue the other run in its own folder",
			from, plain.Text(state.Run), p.id.Run)
	}
	if err := checkArithmetic(from, &state, p.cfg); err != nil {
		return err
	}
	written, _ := npu.ParseNumerics(state.Arithmetic().Name) // float32 for PyTorch ranks
	files, err := p.folder.FilesAs(written)
	if err != nil {
		return usage.Wrap(err)
	}
	delete(files, folder.GenerationFile) // stop settings; they may change
	if err := trainer.CheckResume(from, *id, files, p.folder.Source); err != nil {
		return usage.Wrap(err)
	}
	switch {
	case state.Data != "" && state.Data != id.Data:
		return usage.Errorf("resume: files of %s differ from those that %s was trained on; restore them, or start a "+
			"new run with another run.dir", p.task.key, from)
	case state.Prompts > 0 && state.Prompts != id.Prompts:
		return usage.Errorf(
			"resume: %s has %d usable prompts, expected %d as when the run started: a changed setting drops others",
			p.task.key, id.Prompts, state.Prompts)
	}
	return nil
}

// checkArithmetic returns an error if the run computes with other numerics, or another version of them, than those
// that trained the checkpoint to resume from. A run may switch between easyrl's kernels and PyTorch ranks.
func checkArithmetic(from string, state *trainer.State, cfg *configs.Config) error {
	was, now := state.Arithmetic(), cfg.Identity()
	switch {
	case was == (npu.Identity{}) || now == (npu.Identity{}) || was == now:
		return nil
	case was.Name != now.Name:
		return usage.Errorf("resume: device.numerics is %s, but %s was trained in %s, expected the same. Set "+
			"device.numerics = %q, or start a new run with model.path = %q", now, from, was, was.Name, from)
	}
	return usage.Errorf("resume: this easyrl computes in %s, but %s was trained in %s, expected the same. Resume with "+
		"the easyrl that wrote it, or start a new run with model.path = %q", now, from, was, from)
}

// announce logs where a resumed run continues and which settings changed.
func (j *job) announce() {
	if j.from == "" {
		return
	}
	changes, err := j.resolved.Changes(j.cfg.Run.Dir)
	if err != nil {
		j.warn("cannot compare the settings with those of the run: %v", err)
	} else if len(changes) > 0 {
		j.note("resuming with changed settings: %s", strings.Join(changes, ", "))
	}
	j.note("resuming after step %d from %s", j.state.Step, j.from)
	if j.finished() {
		key := "run.steps"
		if j.task.name == sftTask {
			key = "sft.steps"
		}
		j.note("the run is finished: it has taken %d steps and %s is %d. To continue it, set more steps: -resume "+
			"-set %s=%d",
			j.state.Step, key, j.task.steps, key, j.state.Step+max(j.task.steps, 1))
	}
}

// unbegun returns the error of a run that ended before training began. It is a StoppedError if ctx was cancelled,
// because err may then be any error that this caused, and otherwise err.
func (j *job) unbegun(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	ranks.EndMesh(j.models, true)
	if j.monitor != nil {
		j.monitor.close(j.state.Step, trainer.ErrStopped)
	}
	step := j.state.Step
	if j.from != "" && step == 0 { // not loaded yet
		state, _ := trainer.ReadState(j.from) // claimDir has read it
		step = state.Step
	}
	message := stoppedAfter(step)
	if cause := context.Cause(ctx); errors.Is(err, cause) && err.Error() != cause.Error() {
		message += ": " + err.Error() // it names what the signal interrupted
	}
	return j.stopped(message)
}

// stoppedAfter says that a run stopped after a step, 0 before the first.
func stoppedAfter(step int) string {
	if step == 0 {
		return "stopped before step 1"
	}
	return fmt.Sprintf("stopped after step %d", step)
}

// stopped returns the error of a run that a signal stopped.
func (j *job) stopped(message string) error {
	command := j.opts.Command
	if len(command) == 0 {
		command = []string{"easyrl", j.task.name, filepath.Join(j.cfg.Run.Dir, configs.RunFile)}
	}
	return StoppedError{message, Command(append(slices.Clone(command), "-resume")...)}
}

// finished reports whether a resumed run has nothing left to do.
func (j *job) finished() bool {
	return j.from != "" && j.state.Step >= j.task.steps && j.state.Pending == nil
}
