package session

import (
	"context"
	"slices"

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
	s.linear = finished.linearSums(&out)
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

// LinearSums implements backend.Models.
func (s *Session[R]) LinearSums() *backend.LinearSums { return s.linear }

// linearSums returns the linear sums of an update from its outcome, or nil if the ranks compute none.
func (u *update) linearSums(out *Outcome) *backend.LinearSums {
	if out.Total == nil {
		return nil
	}
	sums := &backend.LinearSums{Passes: make([][]uint64, len(u.micros)), Total: out.Total}
	for i := range sums.Passes {
		sums.Passes[i] = make([]uint64, len(out.Total))
	}
	for id, values := range out.Passes {
		p := u.pieces[id]
		if p == nil || p.of == nil {
			continue // an empty micro-batch
		}
		i := slices.Index(u.micros, p.of)
		for k, v := range values {
			sums.Passes[i][k] += v
		}
	}
	return sums
}
