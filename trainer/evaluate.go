package trainer

import (
	"context"
	"maps"
	"math"

	"github.com/easyrl/easyrl/report"
)

// evaluateFirst scores the starting weights and writes the line of step 0. If the state has
// a pending line, evaluateFirst completes and writes that one instead.
func (t *Trainer) evaluateFirst(ctx context.Context) error {
	line := maps.Clone(t.state.Pending)
	if line == nil {
		if t.cfg.EvalEvery == 0 || t.state.Step > 0 {
			return nil
		}
		line = report.Values{"step": 0, "time": unixNow()}
	}
	if t.cfg.EvalEvery > 0 {
		if _, err := t.evaluate(ctx, line); err != nil {
			return err
		}
	}
	sum, err := t.source.checksum(ctx)
	if err != nil {
		return err
	}
	if err := t.Metrics.Write(report.Line{Values: line, Checksum: sum}); err != nil {
		return err
	}
	t.Progress(t.state.Step, line)
	if t.state.Pending == nil {
		return nil
	}
	t.state.Pending = nil
	return t.checkpoints.saveNow(context.WithoutCancel(ctx), t.state)
}

// evaluates reports whether the policy is evaluated after a step.
func (t *Trainer) evaluates(step int) bool {
	every := t.cfg.EvalEvery
	return every > 0 && (step%every == 0 || step == t.cfg.Steps)
}

// evaluate adds the current policy's scores to line. best means that no earlier evaluation
// was as good.
func (t *Trainer) evaluate(ctx context.Context, line report.Values) (best bool, err error) {
	score, err := t.source.evaluate(ctx, line)
	if err != nil {
		return false, err
	}
	first := t.state.BestStep == 0
	if !math.IsNaN(score) && t.state.Step > 0 && (first || score > t.state.Best) {
		t.state.Best, t.state.BestStep = score, t.state.Step
		return true, nil
	}
	return false, nil
}

// finiteValues returns the values that JSON can represent, for the pending line of a checkpoint.
func finiteValues(values report.Values) report.Values {
	out := report.Values{}
	for name, v := range values {
		if isFinite(v) {
			out[name] = v
		}
	}
	return out
}
