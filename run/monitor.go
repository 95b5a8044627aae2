package run

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/advice"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/sink"
	"github.com/easyrl/easyrl/run/cores"
	"github.com/easyrl/easyrl/trainer"
)

// monitor forwards a run's steps to the programs of log.to and warns about problems that the steps
// reveal.
type monitor struct {
	dir      string
	warn     func(format string, args ...any)
	control  *control.Server // may be nil
	sinks    *sink.Sinks
	adviser  *advice.Adviser
	warnings []report.Warning // issued so far
}

// openMonitor starts the programs of log.to and reads earlier steps and warnings. It drops the
// warnings of steps that run again, since their metrics are dropped too. After an error there
// is nothing to close.
func (j *job) openMonitor() error {
	cfg, dir := j.cfg, j.cfg.Run.Dir
	path := filepath.Join(dir, report.WarningsFile)
	before, err := report.ReadWarnings(path)
	if err != nil {
		return err
	}
	m := &monitor{dir: dir, warn: j.warn, control: j.control}
	for _, w := range before {
		if w.Step < j.firstLine() {
			m.warnings = append(m.warnings, w)
		}
	}
	if len(m.warnings) < len(before) || report.Damaged(path) != "" {
		if err := report.WriteWarnings(path, m.warnings); err != nil {
			return err
		}
	}
	m.adviser = advice.New(adviceOn(cfg), m.warnings)
	err = report.EachStep(filepath.Join(dir, report.MetricsFile), func(values report.Values) error {
		m.adviser.Remember(values)
		j.console.Remember(values)
		return nil
	})
	if err != nil {
		return err
	}
	m.sinks = sink.Open(cfg.Log.To, sink.Run{Name: cfg.Run.Name, Dir: dir, Settings: j.resolved.Values(""),
		Warn: j.warn})
	j.monitor = m
	j.atEnd(func() { m.sinks.Close(sink.Failed) }) // unless close was called
	return nil
}

// adviceOn returns what the adviser needs to know about a run.
func adviceOn(cfg *configs.Config) advice.Run {
	training, each, usesIdle := cores.Share(cfg)
	servers := cfg.Inference.Kind != configs.Embedded || len(cfg.Inference.Endpoints) > 0
	on := advice.Run{Mode: cfg.Run.Mode, Servers: servers, Training: training, Sampling: each * cfg.Inference.Instances,
		Lends: usesIdle,
		Band:  advice.ExactBand, MaxTokens: cfg.Rollout.MaxTokens, DynamicSampling: cfg.Rollout.DynamicSampling > 0,
		Clip: cfg.Train.ClipGrad,
		LR:   cfg.Train.LR, EpsilonHigh: cfg.Loss.EpsilonHigh, Beta: cfg.Loss.Beta,
		Groups: float64(cfg.Rollout.PromptsPerStep), Waves: cfg.Waves()}
	// Our engine records log-probabilities of the whole distribution, even if top_p or top_k cut it.
	if cfg.Train.Backend != configs.EasyRL || servers && !remote.IsExact(cfg.Inference.Kind) {
		on.Band = advice.ServerBand
	}
	return on
}

// step forwards a step and issues the warnings that it causes.
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

// record shows warnings on the live page and saves them for the report, with secrets hidden.
func (m *monitor) record(given ...report.Warning) error {
	if len(given) == 0 {
		return nil
	}
	given = slices.Clone(given)
	for i := range given {
		given[i].Text = secret.Hide(given[i].Text)
	}
	for _, w := range given {
		m.control.Warning(w)
	}
	m.warnings = append(m.warnings, given...)
	return report.WriteWarnings(filepath.Join(m.dir, report.WarningsFile), m.warnings)
}

// close records how the run ended. step is its last step.
func (m *monitor) close(step int, err error) {
	switch {
	case err == nil:
		m.sinks.Close(sink.Finished)
	case errors.Is(err, trainer.ErrStopped):
		m.sinks.Close(sink.Stopped)
	default:
		m.sinks.Close(sink.Failed)
		// The caller reports err, which matters more than a failure to record it.
		_ = m.record(report.Warning{Step: step, Kind: "failed", Text: "the run failed: " + err.Error()})
	}
}
