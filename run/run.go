// Package run puts a run together from its configuration: reinforcement training,
// supervised training, one replayed step, or an evaluation.
package run

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/page"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/run/ranks"
	"github.com/easyrl/easyrl/trainer"
)

// UsageError reports a fault in a configuration or in the files that it names. Nothing
// has been started or changed.
type UsageError = usage.Error

// StoppedError reports that a cancelled context stopped a run. Everything needed to
// continue has been written.
type StoppedError struct {
	Message  string // where it stopped
	Continue string // the command that continues it, for a shell
}

// Error returns the message and the command.
func (e StoppedError) Error() string {
	if e.Continue == "" {
		return e.Message
	}
	return e.Message + "; continue with: " + e.Continue
}

// Options sets how a program runs a configuration.
type Options struct {
	// Files are the configuration files. The run's own copy never overwrites one.
	Files []string
	// Resume continues from the run's newest valid checkpoint.
	Resume bool
	// Command is the command line that starts the run or the evaluation, in words and
	// without -resume. A stopped run names it as the way to continue.
	Command []string
	// Out receives the run's result, Log its progress and warnings.
	Out, Log io.Writer
	// Fleet sets timeouts, retries and health thresholds; nil selects the defaults.
	// Configuration keys override some of them.
	Fleet *fleet.Config
	// Follows is called in the process of a rank other than 0 when all ranks have joined. From then
	// on the process ends with rank 0, even if the context is cancelled. It may be nil.
	Follows func()
	// Silence is the time without a sign of life after which a rank in another process has
	// failed; 0 selects the default of parallel/tcp.
	Silence time.Duration
}

// job holds what train, sft and replay share: models and optimizer state on a device, a
// folder, and progress output.
type job struct {
	*preparation
	models  backend.Models
	torch   *ranks.Torch            // the models with train.backend = "torch"
	traffic func() map[string]int64 // see trainer.Deps; nil without a mesh
	// verification verifies servers by log-probabilities of the models' ranks; nil for the usual
	// comparison with this process's decoder.
	verification instances.Verification
	checks       bool // the job is a check
	state        trainer.State
	metrics      *report.Metrics // set by openDir
	control      *control.Server // nil without control.listen
	spans        *trace.Spans    // nil if the command writes no trace
	monitor      *monitor        // nil before openMonitor

	first int       // steps done before this process started
	began time.Time // when training began
}

func newJob(resolved *configs.Resolved, opts Options, t task) *job {
	return &job{preparation: newPreparation(resolved, opts, t)}
}

// openConsole starts to show progress.
func (j *job) openConsole() {
	j.first, j.began = j.state.Step, time.Now()
	j.show(report.NewConsole(j.opts.Log, j.first, j.task.steps))
	j.atEnd(j.console.Close)
}

// openDir locks the run's folder, writes the run's identity and the resolved configuration to it
// and opens its metrics.
func (j *job) openDir() error {
	dir := j.cfg.Run.Dir
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = j.lock(dir, true)
	}
	if err == nil {
		err = j.id.Keep(dir)
	}
	if usage.Is(err) {
		return err
	}
	if err == nil {
		err = writeSettings(j.resolved, dir, j.state.Step)
	}
	if err == nil {
		err = report.ThisMachine().Write(dir)
	}
	if err == nil {
		err = about(j.cfg, j.task.name, j.folder.NumParams()).Write(dir)
	}
	if err != nil {
		return unwritable(dir, err)
	}
	metrics, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), j.firstLine())
	if err != nil {
		return err
	}
	j.metrics = metrics
	j.atEnd(func() { _ = metrics.Close() })
	return nil
}

// firstLine returns the first step whose metrics this process writes.
func (j *job) firstLine() int {
	if j.state.Step == 0 || j.state.Pending != nil {
		return j.state.Step
	}
	return j.state.Step + 1
}

// finish records how the run ended after a step, writes its report and returns err,
// or a StoppedError if the run was stopped.
func (j *job) finish(step int, err error) error {
	if err == nil {
		j.torch.End()
	}
	j.monitor.close(step, err)
	if _, _, pageErr := page.Write(j.cfg.Run.Dir); pageErr != nil && err == nil {
		j.warn("%v", pageErr)
	}
	stopped := errors.Is(err, trainer.ErrStopped)
	j.console.Close()
	if err == nil || stopped {
		ranks.EndMesh(j.models, stopped)
		s := summary{dir: j.cfg.Run.Dir, first: j.first, last: step, total: j.task.steps, took: time.Since(j.began)}
		for _, line := range s.lines() {
			j.note("%s", line)
		}
	}
	if stopped {
		return j.stopped(stoppedAfter(step))
	}
	return err
}

// progress reports a finished step.
func (j *job) progress(_ int, values report.Values) {
	j.console.Step(values)
	j.control.Step(values, j.console.Left())
	j.monitor.step(values)
	_ = j.spans.Keep(j.tracePath()) // the last write reports a persistent error
}

func (j *job) tracePath() string { return filepath.Join(j.cfg.Run.Dir, trace.File) }

// Load reads and validates the configuration of a task. Later files override earlier
// ones, and settings override files. Its errors are usage errors.
func Load(task configs.Task, files, settings []string) (*configs.Resolved, error) {
	resolved, err := configs.Load(files, settings)
	if err == nil {
		err = resolved.Validate(task)
	}
	if err != nil {
		return nil, usage.Wrap(err)
	}
	return resolved, nil
}
