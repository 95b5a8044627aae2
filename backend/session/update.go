package session

import (
	"context"

	"github.com/easyrl/easyrl/backend"
)

// Step implements backend.Models. It first waits until all micro-batches are finished, as Flush does. Cancelling
// ctx does not interrupt the update itself.
func (s *Session[R]) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	s.now.step = u
	var out Outcome
	err = s.Attempt(ctx, func(ranks R) error {
		if err := s.finish(ctx, ranks); err != nil {
			return err
		}
		out, err = ranks.Step(context.WithoutCancel(ctx), u)
		return err
	})
	if err != nil {
		return 0, err
	}
	finished := s.now
	s.now = s.newUpdate()
	s.restarts = 0
	if out.Skipped != nil {
		return out.Norm, out.Skipped
	}
	s.record(entry[R]{update: finished})
	s.updates = u.Number
	s.finiteErr = out.Weights
	return out.Norm, nil
}

// CheckFinite implements backend.Models.
func (s *Session[R]) CheckFinite() error { return s.finiteErr }
