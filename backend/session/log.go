package session

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
)

// Point is a recovery point: a state that ranks can load.
type Point struct {
	Folder  string // empty for the starting weights
	Steps   int    // number of steps before it
	Updates int    // number of updates before it
	Own     bool   // whether NewFolder made the folder; the session then removes it
}

// entry is a change of the ranks' state: an update or, if update is nil, a call of do.
type entry[R Ranks] struct {
	update *update
	do     func(ctx context.Context, ranks R) error
}

// update is an optimizer update with its micro-batches.
type update struct {
	plan   schedule.Plan
	micros []*micro         // in the order of Pass
	pieces map[int64]*piece // the pieces of micros, by ID
	step   backend.Update   // set by Step
}

// newUpdate returns an update without micro-batches.
func (s *Session[R]) newUpdate() *update {
	return &update{plan: s.cfg.Plan(s.depth), pieces: map[int64]*piece{}}
}

// Do changes the ranks' state other than by an update. If ranks are replaced later, change runs again with the new
// ones. Call Flush first.
func (s *Session[R]) Do(ctx context.Context, change func(ctx context.Context, ranks R) error) error {
	err := s.Attempt(ctx, func(ranks R) error { return change(ctx, ranks) })
	if err == nil {
		s.record(entry[R]{do: change})
	}
	return err
}

// record adds to the log, unless ranks are never replaced.
func (s *Session[R]) record(e entry[R]) {
	if s.cfg.Folder != "" {
		s.log = append(s.log, e)
	}
}

// Mark is a position in the log: the number of entries before it, counted from Open.
type Mark int

// Now returns the mark of the end of the log.
func (s *Session[R]) Now() Mark { return s.removed + Mark(len(s.log)) }

// Kept returns the number of updates in the log.
func (s *Session[R]) Kept() (n int) {
	for _, e := range s.log {
		if e.update != nil {
			n++
		}
	}
	return n
}

// Updates returns the number of updates made.
func (s *Session[R]) Updates() int { return s.updates }

// Point returns the recovery point.
func (s *Session[R]) Point() Point { return s.point }

// Advance replaces the recovery point by p, the state at mark, and removes the entries before mark, which must not be
// before the last recovery point. It returns an error if it cannot remove the last point's folder.
func (s *Session[R]) Advance(mark Mark, p Point) error {
	last := s.point
	s.point = p
	s.log = append([]entry[R](nil), s.log[mark-s.removed:]...) // frees the others
	s.removed = mark
	if last.Own {
		return os.RemoveAll(last.Folder)
	}
	return nil
}

// Reset makes p the recovery point and drops the log and the current update. It does not touch the ranks: the
// caller makes them load p, or calls Drop. Its error is that of Advance.
func (s *Session[R]) Reset(p Point) error {
	err := s.Advance(s.Now(), p)
	s.updates = p.Updates
	s.now = s.newUpdate()
	s.toDerive = nil
	return err
}

// restore starts ranks from the recovery point, repeats the log, and restarts the plan of the current update.
// It sets s.ranks if it succeeds.
func (s *Session[R]) restore(ctx context.Context) error {
	ranks, err := s.cfg.Start(ctx, s.point)
	if err != nil {
		if ctx.Err() == nil && !errors.As(err, new(*Fault)) {
			s.end(err)
		}
		return err
	}
	for _, e := range s.log {
		if e.update != nil {
			err = s.repeat(ctx, ranks, e.update)
		} else {
			err = e.do(ctx, ranks)
		}
		if err != nil {
			var failed *Fault
			if errors.As(err, &failed) {
				err = ranks.Diagnose(failed)
			}
			ranks.Close()
			return err
		}
	}
	s.now.plan.Restart()
	s.ranks = ranks
	return nil
}

// repeat repeats an update and its micro-batches.
func (s *Session[R]) repeat(ctx context.Context, ranks R, u *update) error {
	u.plan.Restart()
	for !u.plan.Idle() {
		if err := s.order(ranks, u, schedule.None); err != nil {
			return err
		}
		if u.plan.Idle() {
			break
		}
		if err := s.receive(ctx, ranks, u); err != nil {
			return err
		}
	}
	out, err := ranks.Step(ctx, u.step)
	if err == nil && out.Skipped != nil {
		err = &Fault{"", fmt.Errorf("update %d: gradients are not finite when repeated", u.step.Number)}
	}
	return err
}
