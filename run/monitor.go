package run

import (
	"errors"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/advice"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/sink"
	"github.com/easyrl/easyrl/trainer"
)

// monitor passes a run's steps to the programs of log.to and warns people of what
// the steps show.
type monitor struct {
	dir      string
	warn     func(format string, args ...any)
	control  *control.Server
	sinks    *sink.Sinks
	adviser  *advice.Adviser
	warnings []report.Warning // given so far
}

// openMonitor opens the programs of log.to and reads the steps before. It drops
// warnings of steps that run again, as their metrics are dropped.
func (j *job) openMonitor() error {
	dir := j.cfg.Run.Dir
	m := monitor{dir: dir, warn: j.warn, control: j.control,
		sinks: sink.Open(j.cfg.Log.To, sink.Run{Name: j.cfg.Run.Name, Dir: dir, Settings: j.resolved.Values(""), Warn: j.warn})}
	j.atEnd(func() { m.sinks.Close(sink.Failed) }) // does nothing if closed before
	path := filepath.Join(dir, report.WarningsFile)
	before, err := report.ReadWarnings(path)
	if err != nil {
		return err
	}
	for _, w := range before {
		if w.Step < j.firstLine() {
			m.warnings = append(m.warnings, w)
		}
	}
	if len(m.warnings) < len(before) {
		if err := report.WriteWarnings(path, m.warnings); err != nil {
			return err
		}
	}
	m.adviser = advice.New(adviceOn(j.cfg), m.warnings)
	j.monitor = m
	return report.EachStep(filepath.Join(dir, report.MetricsFile), func(values report.Values) error {
		m.adviser.Remember(values)
		return nil
	})
}

// adviceOn is what advice needs to know of a run.
func adviceOn(cfg *configs.Config) advice.Run {
	training, each, lends := shareThreads(cfg)
	servers := cfg.Inference.Kind != configs.Embedded || len(cfg.Inference.Endpoints) > 0
	on := advice.Run{Mode: cfg.Run.Mode, Servers: servers, Training: training, Sampling: each * cfg.Inference.Instances, Lends: lends,
		Band: advice.ExactBand, MaxTokens: cfg.Rollout.MaxTokens, Refill: cfg.Rollout.Refill > 0, Clip: cfg.Train.ClipGrad,
		Groups: float64(cfg.Rollout.PromptsPerStep), Waves: cfg.Waves()}
	if servers && !remote.IsExact(cfg.Inference.Kind) || cfg.Rollout.TopP < 1 || cfg.Rollout.TopK > 0 || cfg.Rollout.MinP > 0 {
		on.Band = advice.ServerBand
	}
	return on
}

// step passes on a step and gives the warnings that it is a reason for.
func (m *monitor) step(values report.Values) {
	m.sinks.Step(values)
	given := m.adviser.Step(values)
	for _, w := range given {
		m.warn("step %d: %s", w.Step, w.Text)
	}
	if err := m.record(given...); err != nil {
		m.warn("%v", err)
	}
}

// record shows warnings on the live page and writes them for the report.
func (m *monitor) record(given ...report.Warning) error {
	if len(given) == 0 {
		return nil
	}
	for _, w := range given {
		m.control.Warning(w)
	}
	m.warnings = append(m.warnings, given...)
	return report.WriteWarnings(filepath.Join(m.dir, report.WarningsFile), m.warnings)
}

// close records how the run ended after a step.
func (m *monitor) close(step int, err error) {
	switch {
	case err == nil:
		m.sinks.Close(sink.Finished)
	case errors.Is(err, trainer.ErrStopped):
		m.sinks.Close(sink.Stopped)
	default:
		m.sinks.Close(sink.Failed)
		_ = m.record(report.Warning{Step: step, Kind: "failed", Text: "the run failed: " + err.Error()}) // err is the fault to report
	}
}
