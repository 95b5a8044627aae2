package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// maxNonFinite is the number of gradients in a row that may be not finite before
// a run stops.
const maxNonFinite = 3

// update is one optimizer step on what the micro-batches accumulated: sums,
// which are divided here, once, by what the aggregation says. A gradient that is
// not finite changes nothing and is counted. Weights that are not finite after
// the step end the run, before anything of them is saved.
func (t *Trainer) update(s *step) error {
	began := time.Now()
	defer t.Track.Begin(s.step, "optimizer").End()
	t.between = true
	s.updates++
	s.metrics.merge(&s.mini.metrics)
	if s.mini.groups == 0 { // every group of it was given up
		s.metrics.Mean("actor/loss", 0, 1)
		s.metrics.Mean("actor/pg_loss", 0, 1)
		return nil
	}
	constant := t.cfg.Loss.Constant
	if constant == 0 {
		constant = t.cfg.MaxTokens
	}
	scale := 1 / t.cfg.Loss.Aggregation.Denominator(s.mini.responses, s.mini.tokens, constant)
	s.metrics.Mean("actor/loss", s.mini.loss*scale, 1)
	s.metrics.Mean("actor/pg_loss", s.mini.pg*scale, 1)
	s.lr = t.schedule.LR(t.state.Updates+1, t.state.Total*t.cfg.MiniBatches)
	var err error
	s.norm, err = t.Models.Step(t.opt, scale, s.lr, t.cfg.Optim.ClipGrad)
	s.clock.optimizer += time.Since(began)
	t.state.Updates = t.opt.Updates
	if err == nil {
		if s.mini.rows > 0 { // a gradient was computed
			t.nonFinite = 0
		}
		err = t.Models.Policy.CheckFinite()
		if errors.Is(err, model.ErrNotFinite) {
			return fmt.Errorf("step %d: after an update at lr %v: %w", s.step, s.lr, err)
		}
	}
	if !errors.Is(err, optim.ErrNonFinite) {
		return err
	}
	if t.nonFinite++; t.nonFinite >= cmp.Or(t.cfg.MaxNonFinite, maxNonFinite) {
		return fmt.Errorf("step %d: %w, %d in a row", s.step, err, t.nonFinite)
	}
	t.Warn("step %d: %v: the weights stay as they are", s.step, err)
	return nil
}

// finish records a trained step, evaluates and checkpoints where it is time.
func (t *Trainer) finish(ctx context.Context, s *step) error {
	stats, err := s.stream.Wait()
	s.cancel()
	if err != nil {
		return fmt.Errorf("step %d: sample: %w", s.step, err)
	}
	t.state.Step = s.step
	t.state.Position += t.cfg.PromptsPerStep
	s.clock.all = time.Since(s.clock.began)
	s.span.End()
	values := t.values(s, stats)
	if err := t.logRollouts(s, stats.Replaced); err != nil {
		return err
	}
	last := s.step == t.cfg.Steps
	best := false
	if every := t.cfg.EvalEvery; every > 0 && (s.step%every == 0 || last) {
		if best, err = t.evaluate(ctx, values); err != nil {
			t.state.Pending, t.between = finite(values), false
			return err
		}
	}
	if err := t.save.failed(); err != nil {
		return err
	}
	// While gradients are not finite nothing new is worth the place of an older
	// checkpoint.
	due := t.cfg.CheckpointEvery > 0 && s.step%t.cfg.CheckpointEvery == 0 && t.nonFinite == 0
	var write func() written
	if last || best || due {
		began := time.Now()
		span := t.Track.Begin(s.step, "checkpoint")
		if write, err = t.save.capture(t.state); err != nil {
			return err
		}
		span.End()
		values["timing_s/checkpoint"] = time.Since(began).Seconds()
	}
	if err := t.Metrics.Write(values); err != nil {
		return err
	}
	t.between = false
	t.Progress(s.step, values)
	if write != nil {
		t.save.start(write)
	}
	return nil
}

// finite are the values that JSON can hold: the line of a step whose evaluation
// was cut short, for the run that resumes.
func finite(values report.Values) report.Values {
	out := report.Values{}
	for name, v := range values {
		if v-v == 0 {
			out[name] = v
		}
	}
	return out
}

// evaluatePending makes up for an evaluation that was cut short.
func (t *Trainer) evaluatePending(ctx context.Context) error {
	if t.state.Pending == nil {
		return nil
	}
	values := maps.Clone(t.state.Pending)
	if _, err := t.evaluate(ctx, values); err != nil {
		return err
	}
	if err := t.Metrics.Write(values); err != nil {
		return err
	}
	t.Progress(t.state.Step, values)
	t.state.Pending = nil
	return t.save.now(t.state)
}

// evaluateFirst scores the starting weights and writes the line of step 0.
func (t *Trainer) evaluateFirst(ctx context.Context) error {
	if t.cfg.EvalEvery == 0 || t.state.Step > 0 {
		return nil
	}
	values := report.Values{"step": 0, "version": 1, "time": unixNow()}
	if _, err := t.evaluate(ctx, values); err != nil {
		return err
	}
	if err := t.Metrics.Write(values); err != nil {
		return err
	}
	t.Progress(0, values)
	return nil
}

// evaluate publishes the policy as it is and adds its scores to values. best
// says that no evaluation before was as good.
func (t *Trainer) evaluate(ctx context.Context, values report.Values) (best bool, err error) {
	began := time.Now()
	if err := t.publish(ctx); err != nil {
		return false, err
	}
	defer t.Track.Begin(t.state.Step, "eval").End()
	metrics, score, err := t.Evaluate(ctx, t.state.Step)
	if err != nil {
		return false, fmt.Errorf("evaluate after step %d: %w", t.state.Step, err)
	}
	maps.Copy(values, metrics)
	values["timing_s/eval"] = time.Since(began).Seconds()
	if score == score && t.state.Step > 0 && (t.state.BestStep == 0 || score > t.state.Best) {
		t.state.Best, t.state.BestStep = score, t.state.Step
		return true, nil
	}
	return false, nil
}

// logRollouts writes the step's groups, in the order of its prompts, and after
// them those that were replaced.
func (t *Trainer) logRollouts(s *step, replaced []rollout.Group) error {
	if !t.cfg.LogRollouts {
		return nil
	}
	dir := filepath.Join(t.cfg.Dir, "rollouts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("log rollouts: %w", err)
	}
	byIndex := func(a, b rollout.Group) int { return a.Index - b.Index }
	slices.SortFunc(s.groups, byIndex)
	slices.SortStableFunc(replaced, byIndex) // those of an index stay in turn
	var b []byte
	for _, g := range slices.Concat(s.groups, replaced) {
		line, err := g.MarshalJSON()
		if err != nil {
			return fmt.Errorf("log rollouts: prompt %s: %w", g.Prompt.ID, err)
		}
		b = append(append(b, line...), '\n')
	}
	path := filepath.Join(dir, fmt.Sprintf("step-%06d.jsonl", s.step))
	if err := os.WriteFile(path, b, 0o644); err != nil {
		_ = os.Remove(path) // a part of it would be taken for the whole
		return fmt.Errorf("log rollouts: %w", err)
	}
	return nil
}
