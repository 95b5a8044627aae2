package main

import (
	"errors"
	"path/filepath"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/advice"
	"github.com/easyrl/easyrl/report/sink"
	"github.com/easyrl/easyrl/trainer"
)

// words are what a run says of its steps, beside their metrics: to other programs,
// and as warnings to people.
type words struct {
	sinks    *sink.Sinks
	adviser  *advice.Adviser
	warnings []report.Warning // that were given
}

// openWords opens the programs of log.to and what is known of the steps before.
// Warnings of steps that are done anew are dropped, as their metrics are.
func (r *trainRun) openWords(resolved *configs.Resolved) error {
	dir := r.cfg.Run.Dir
	r.words.sinks = sink.Open(r.cfg.Log.To, sink.Run{Name: r.cfg.Run.Name, Dir: dir, Settings: resolved.Values(""), Warn: r.warn})
	r.atEnd(func() { r.words.sinks.Close(sink.Failed) }) // unless it was closed before
	path := filepath.Join(dir, report.WarningsFile)
	before, err := report.ReadWarnings(path)
	if err != nil {
		return err
	}
	for _, w := range before {
		if w.Step < r.firstLine() {
			r.words.warnings = append(r.words.warnings, w)
		}
	}
	if len(r.words.warnings) < len(before) {
		if err := report.WriteWarnings(path, r.words.warnings); err != nil {
			return err
		}
	}
	r.words.adviser = advice.New(r.about(), r.words.warnings)
	return report.EachStep(filepath.Join(dir, report.MetricsFile), func(values report.Values) error {
		r.words.adviser.Remember(values)
		return nil
	})
}

// about is what warnings need to know of the run.
func (r *trainRun) about() advice.Run {
	cfg := r.cfg
	training, each, lends := threads(cfg)
	servers := cfg.Inference.Kind != configs.Embedded || len(cfg.Inference.Endpoints) > 0
	about := advice.Run{Mode: cfg.Run.Mode, Servers: servers, Training: training, Sampling: each * cfg.Inference.Instances, Lends: lends,
		Band: advice.ExactBand, MaxTokens: cfg.Rollout.MaxTokens, Refill: cfg.Rollout.Refill > 0, Clip: cfg.Train.ClipGrad,
		Groups: float64(cfg.Rollout.PromptsPerStep), Waves: cfg.Waves()}
	if servers && cfg.Inference.Kind != configs.EasyRL || cfg.Rollout.TopP < 1 || cfg.Rollout.TopK > 0 || cfg.Rollout.MinP > 0 {
		about.Band = advice.ServerBand
	}
	return about
}

// progress shows a step to all who look.
func (r *trainRun) progress(_ int, values report.Values) {
	r.console.Step(values)
	r.control.Step(values, r.console.Left())
	r.tell(values)
	_ = r.spans.Keep(r.tracePath()) // the last write reports what is still wrong then
}

// tell hands a step to other programs and prints the warnings that it is a reason
// for.
func (r *trainRun) tell(values report.Values) {
	r.words.sinks.Step(values)
	said := r.words.adviser.Step(values)
	for _, w := range said {
		r.warn("step %d: %s", w.Step, w.Text)
	}
	if err := r.keep(said...); err != nil {
		r.warn("%v", err)
	}
}

// keep shows warnings on the live page and keeps them for the report.
func (r *trainRun) keep(said ...report.Warning) error {
	if len(said) == 0 {
		return nil
	}
	for _, w := range said {
		r.control.Warning(w)
	}
	r.words.warnings = append(r.words.warnings, said...)
	return report.WriteWarnings(filepath.Join(r.cfg.Run.Dir, report.WarningsFile), r.words.warnings)
}

// ended tells other programs, and the report, how the run ended after a step.
func (r *trainRun) ended(step int, err error) {
	switch {
	case err == nil:
		r.words.sinks.Close(sink.Finished)
	case errors.Is(err, trainer.ErrStopped):
		r.words.sinks.Close(sink.Stopped)
	default:
		r.words.sinks.Close(sink.Failed)
		_ = r.keep(report.Warning{Step: step, Kind: "failed", Text: "the run failed: " + err.Error()}) // there is something worse to report
	}
}
