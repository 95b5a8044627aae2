package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
)

// maxNonFinite is the number of consecutive gradients that may be not finite before a run
// stops.
const maxNonFinite = 3

// step is one step in progress.
type step struct {
	number  int // from 1
	span    trace.Span
	clock   clock
	metrics metrics // merged over the step's batches
	updates int     // updates made or skipped because their gradient was not finite
	lr      float64 // learning rate of the last update
	flops   float64 // operations of the policy's forward and backward passes
	sums    []UpdateSums
}

// clock splits a step's wall time.
type clock struct {
	began                                            time.Time
	publish, firstGroup, wait, train, optimizer, all time.Duration
}

func (t *Trainer) begin() *step {
	n := t.state.Step + 1
	return &step{number: n, clock: clock{began: time.Now()}, span: t.Track.Begin(n, "step")}
}

// update takes an optimizer step on the accumulated gradient sums, scaled by b.scale. If the gradient is not
// finite or out of range, update skips it with a warning, and fails after too many in a row. It also fails if the
// new weights are not finite, before they can be saved.
func (t *Trainer) update(ctx context.Context, s *step, b *miniBatch) error {
	began := time.Now()
	defer t.Track.Begin(s.number, "optimizer").End()
	t.midStep = true
	s.metrics.merge(&b.metrics)
	if b.scale == 0 { // nothing to train
		return nil
	}
	s.updates++
	s.lr = t.schedule.LR(t.state.Updates+1, t.total*t.cfg.MiniBatches)
	norm, err := t.Models.Step(ctx, backend.Update{
		Number: t.state.Updates + 1, Scale: b.scale, LR: s.lr, Clip: t.cfg.Optim.ClipGrad})
	s.clock.optimizer += time.Since(began)
	if err == nil || errors.Is(err, optim.ErrNonFinite) {
		t.source.updated(s, b)
	}
	if err == nil {
		t.state.Updates++
		s.metrics.Mean("actor/grad_norm", norm, 1)
		if b.rows > 0 { // a gradient was computed
			t.nonFinite = 0
		}
		err = t.Models.CheckFinite()
		if errors.Is(err, model.ErrNotFinite) {
			return fmt.Errorf("after an update at lr %v: %w", s.lr, err)
		}
	}
	if !errors.Is(err, optim.ErrNonFinite) {
		return err
	}
	if errors.Is(err, optim.ErrOutOfRange) {
		err = fmt.Errorf("%w (remedy: %s)", err, t.source.remedy())
	}
	if t.nonFinite++; t.nonFinite >= cmp.Or(t.cfg.MaxNonFinite, maxNonFinite) {
		return fmt.Errorf("%w, %d in a row", err, t.nonFinite)
	}
	t.Warn("step %d: %v; skipped this update", s.number, err)
	return nil
}

// finish records a trained step, and evaluates and saves it if that is due.
func (t *Trainer) finish(ctx context.Context, s *step) error {
	if err := t.source.end(); err != nil {
		return fmt.Errorf("step %d: %w", s.number, err)
	}
	t.state.Step = s.number
	t.state.Position += t.cfg.PromptsPerStep
	t.state.Settings = t.cfg.Settings
	sum, err := t.source.checksum(context.WithoutCancel(ctx)) // err counts when the line has all else
	s.clock.all = time.Since(s.clock.began)
	s.span.End()
	line := report.Values{"step": float64(s.number), "time": unixNow(),
		"timing_s/step": s.clock.all.Seconds(), "memory/peak_bytes": float64(report.PeakMemory())}
	if err := t.source.record(s, line); err != nil {
		return err
	}
	if t.Traffic != nil {
		for purpose, bytes := range t.Traffic() {
			line["traffic/"+purpose+"_bytes"] = float64(bytes)
		}
	}
	if s.updates > 0 {
		line["actor/lr"] = s.lr
	}
	s.metrics.into(line)
	last := s.number == t.cfg.Steps
	best := false
	if err == nil && t.evaluates(s.number) {
		best, err = t.evaluate(ctx, line)
	}
	if err != nil {
		t.state.Pending, t.midStep = finiteValues(line), false
		return err
	}
	if err := t.checkpoints.takeError(); err != nil {
		return err
	}
	// Without a finite gradient there is nothing new to save.
	due := t.cfg.CheckpointEvery > 0 && s.number%t.cfg.CheckpointEvery == 0 && t.nonFinite == 0
	var write func() written
	if (last || best || due) && !t.cfg.Unsaved {
		if write, err = t.capture(ctx, line); err != nil {
			return err
		}
	}
	if err := t.Metrics.Write(report.Line{Values: line, Checksum: sum}); err != nil {
		return err
	}
	t.midStep = false
	t.Progress(s.number, line)
	if write != nil {
		t.checkpoints.start(write)
	}
	return nil
}

// capture copies the contents of the step's checkpoint, adds the time that this takes to line, and returns a
// function that writes the checkpoint.
func (t *Trainer) capture(ctx context.Context, line report.Values) (write func() written, err error) {
	began := time.Now()
	defer t.Track.Begin(t.state.Step, "checkpoint").End()
	write, err = t.checkpoints.capture(ctx, t.state)
	if t.logCheckpointTime {
		line["timing_s/checkpoint"] = time.Since(began).Seconds()
	}
	return write, err
}

// unixNow returns the time in seconds since 1970, with milliseconds.
func unixNow() float64 { return float64(time.Now().UnixMilli()) / 1000 }
