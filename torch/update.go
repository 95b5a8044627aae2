package torch

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// Step waits until no micro-batch is in flight and makes an update. Cancelling ctx does not interrupt the
// update itself. norm is that of the scaled gradients before clipping. If a gradient, u.Scale or u.LR is
// not finite, the policy does not change, the gradients are cleared and the error wraps
// optim.ErrNonFinite. Every recoveryEvery updates, Step also writes a recovery point.
func (s *Session) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if !finite(u.Scale) || !finite(u.LR) {
		s.Discard()
		return 0, fmt.Errorf("optimizer step %d: gradient scale %v, learning rate %v: %w", u.Number, u.Scale, u.LR,
			optim.ErrNonFinite)
	}
	s.now.step = wire.Step{Update: u.Number, Scale: u.Scale, LR: u.LR, Clip: u.Clip}
	var result outcome
	err = s.attempt(ctx, func(g *group) error {
		if err := s.finish(ctx, g); err != nil {
			return err
		}
		result, err = s.step(context.WithoutCancel(ctx), g, s.now.step)
		return err
	})
	if err != nil {
		return 0, err
	}
	finished := s.now
	s.now = s.newUpdate()
	s.fresh = false
	s.restarts = 0
	if !result.finite {
		return result.norm, fmt.Errorf("optimizer step %d: gradients: %w", u.Number, optim.ErrNonFinite)
	}
	s.past = append(s.past, finished)
	s.updates = u.Number
	s.finiteErr = nil
	if !result.weightsFinite {
		s.finiteErr = fmt.Errorf("weights after update %d: %w", u.Number, model.ErrNotFinite)
		return result.norm, nil
	}
	if len(s.past) >= recoveryEvery {
		err = s.savePoint(ctx)
	}
	return result.norm, err
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight of the policy is not
// finite.
func (s *Session) CheckFinite() error { return s.finiteErr }

// outcome is the result of an update.
type outcome struct {
	norm          float64 // norm of the scaled gradients before clipping; 0 if it is not finite
	finite        bool    // whether the gradients were finite, so that ranks have applied the update
	weightsFinite bool    // whether the weights are finite after the update
}

// step makes all ranks apply an update, and checks that all report the same outcome.
func (s *Session) step(ctx context.Context, g *group, m wire.Step) (outcome, error) {
	answers := make([]wire.Stepped, len(g.ranks))
	err := g.exchange(ctx, m, "step", s.cfg.Deadlines.Pass, func(r *rank, f *wire.Frame) error {
		a := &answers[r.hello.Rank]
		if err := f.Decode(a); err != nil {
			return err
		}
		if a.Update != m.Update {
			return fmt.Errorf("update is %d, expected %d", a.Update, m.Update)
		}
		if a.Finite && (a.Norm == nil || !(*a.Norm >= 0)) { // also true for a NaN
			return errors.New("norm is missing, expected 0 or more")
		}
		r.trace("optimizer", a.Seconds)
		s.memory[r.hello.Rank] = a.Memory
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	first := &answers[0]
	for i := range answers {
		if a := &answers[i]; a.Finite != first.Finite || a.WeightsFinite != first.WeightsFinite {
			return outcome{}, g.ranks[i].fault(fmt.Errorf(
				"step: finite is %v for gradients and %v for weights, expected %v and %v as on rank 0",
				a.Finite, a.WeightsFinite, first.Finite, first.WeightsFinite))
		}
	}
	out := outcome{finite: first.Finite, weightsFinite: first.WeightsFinite}
	if first.Norm != nil {
		out.norm = *first.Norm
	}
	return out, nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
