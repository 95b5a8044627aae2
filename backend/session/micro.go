package session

import (
	"context"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
)

// micro is a micro-batch. It lives until the next recovery point, because a restart repeats it.
//
// Its states: pieces are planned (cut); log-probabilities arrive (answered) until none is missing; it waits
// in Session.toDerive; evaluate calls derive, which sets gradient; its gradients are planned
// (planGradients). A restart repeats the pieces, but never calls derive again.
type micro struct {
	update   *update
	layout   *attention.Layout // a copy of Pass's
	sampler  int64             // version that sampled it
	derive   backend.Derive    // nil once it has returned
	outputs  *backend.Outputs  // nil before the first answer and after derive
	gradient []float32         // derivative of the loss for each target; nil before derive has returned
	whole    *piece            // the only piece; nil if the micro-batch is cut into several or has none yet
	missing  int               // number of pieces whose log-probabilities derive still needs
}

// piece is the unit that a replica computes at once: a micro-batch, or a part of one that does not fit a
// rank's memory.
type piece struct {
	id      int64
	of      *micro // nil for a piece of Logprobs
	layout  *attention.Layout
	targets []int // index of each target among the micro-batch's; nil if the piece is the only one
	// probe is set if the piece only computes log-probabilities, for a derive that needs those of
	// all pieces. Its gradients are zero.
	probe    bool
	answered bool // whether its log-probabilities are stored in the micro-batch
}

// Idle reports whether no micro-batch is in flight.
func (s *Session[R]) Idle() bool { return s.now.plan.Idle() }

// Pass implements backend.Models. It copies l and waits until the plan has room for another micro-batch.
// The session calls derive once, even if ranks fail. After a derive returns an error, Pass, Poll, Flush and
// Step return that error until Discard.
func (s *Session[R]) Pass(ctx context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	if s.deriveErr != nil {
		return s.deriveErr
	}
	if len(l.Targets) == 0 { // nothing to compute
		_, err := derive(backend.Outputs{})
		return err
	}
	m := &micro{update: s.now, layout: l.Clone(), sampler: sampler, derive: derive}
	s.now.micros = append(s.now.micros, m)
	s.cut(m)
	err := s.Attempt(ctx, func(ranks R) error { return s.work(ctx, ranks, schedule.More, s.now.plan.Room) })
	if err == nil {
		s.Notify() // Poll may start an incomplete round
	}
	return err
}

// Poll handles the answers that have arrived and replaces ranks that have failed. It does not wait for more
// answers.
func (s *Session[R]) Poll(ctx context.Context) error {
	return s.Attempt(ctx, func(ranks R) error {
		return s.work(ctx, ranks, schedule.Later, func() bool { return true })
	})
}

// Flush waits until all micro-batches are finished.
func (s *Session[R]) Flush(ctx context.Context) error {
	return s.Attempt(ctx, func(ranks R) error { return s.finish(ctx, ranks) })
}

// finish works until all micro-batches of the update are finished.
func (s *Session[R]) finish(ctx context.Context, ranks R) error {
	return s.work(ctx, ranks, schedule.None, s.now.plan.Idle)
}

// receive waits for an event and handles the answer of an update's micro-batch.
func (s *Session[R]) receive(ctx context.Context, ranks R, u *update) error {
	a, err := ranks.Receive(ctx)
	if err == nil {
		s.handle(u, a)
	}
	return err
}

// handle handles an answer of an update's micro-batch.
func (s *Session[R]) handle(u *update, a Answer) {
	switch {
	case a.ID == 0:
	case a.Outputs == nil:
		u.plan.Passed(a.Replica, a.ID)
	default:
		s.answered(u.pieces[a.ID], a.Outputs)
	}
}

// work handles answers, sends messages that are due, and calls derive for answered micro-batches, until
// done returns true. next says whether micro-batches follow those of s.now. A derive may call Logprobs, which
// replaces ranks that fail. In that case ranks have ended, and work returns errReplaced.
func (s *Session[R]) work(ctx context.Context, ranks R, next schedule.Outlook, done func() bool) error {
	for {
		if err := s.drain(ranks); err != nil {
			return err
		}
		if err := s.order(ranks, s.now, next); err != nil {
			return err
		}
		derived, err := s.evaluate()
		switch {
		case err != nil:
			return err
		case s.ranks != ranks:
			return errReplaced
		case derived: // messages may be due
			continue
		case done():
			return nil
		}
		if err := s.receive(ctx, ranks, s.now); err != nil {
			return err
		}
	}
}

// drain handles the answers that have arrived.
func (s *Session[R]) drain(ranks R) error {
	for {
		a, found, err := ranks.Poll()
		if err != nil || !found {
			return err
		}
		s.handle(s.now, a)
	}
}

// order sends the messages of an update's plan that are due.
func (s *Session[R]) order(ranks R, u *update, next schedule.Outlook) error {
	for _, message := range u.plan.Due(next) {
		var layout *attention.Layout // nil for an empty micro-batch
		var sampler int64
		var gradient []float32
		p := u.pieces[message.ID]
		if p != nil {
			layout = p.layout
			sampler = p.of.sampler
		}
		var err error
		if message.Kind == schedule.Forward {
			err = ranks.Forward(message.Replica, message.ID, layout, sampler)
		} else {
			if p != nil {
				gradient = p.gradient()
			}
			err = ranks.Backward(message.Replica, message.ID, gradient)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// answered stores a piece's outputs. Once a micro-batch has all of them, answered queues it for derive.
func (s *Session[R]) answered(p *piece, out *backend.Outputs) {
	m := p.of
	if p.answered || m.gradient != nil {
		return // a restart has repeated the piece
	}
	p.answered = true
	m.store(p, out)
	m.missing--
	if m.missing == 0 {
		s.toDerive = append(s.toDerive, m)
	}
}

// store copies a piece's outputs to their indices in the micro-batch's.
func (m *micro) store(p *piece, out *backend.Outputs) {
	if p.targets == nil {
		m.outputs = out
		return
	}
	n := len(m.layout.Targets)
	if m.outputs == nil {
		m.outputs = &backend.Outputs{Values: backend.Values{}, Entropy: make([]float32, n)}
		for role := range out.Values {
			m.outputs.Values[role] = make([]float32, n)
		}
	}
	for i, target := range p.targets {
		m.outputs.Entropy[target] = out.Entropy[i]
		for role, values := range out.Values {
			m.outputs.Values[role][target] = values[i]
		}
	}
}

// evaluate calls derive for the first micro-batch in toDerive and reports whether there was one. It does nothing
// if a derive is running. After a derive returns an error, evaluate returns that error until Discard.
func (s *Session[R]) evaluate() (derived bool, err error) {
	if s.deriveErr != nil || s.deriving || len(s.toDerive) == 0 {
		return false, s.deriveErr
	}
	m := s.toDerive[0]
	s.toDerive = s.toDerive[1:]
	s.deriving = true
	gradients, err := m.derive(*m.outputs)
	s.deriving = false
	values := gradients[backend.Policy]
	if expected := len(m.layout.Targets); err == nil && len(values) != expected {
		err = s.named(fmt.Errorf("the loss has %d derivatives, expected %d", len(values), expected))
	}
	if err != nil {
		s.deriveErr = err
		return true, err
	}
	m.gradient = slices.Clone(values)
	m.derive = nil
	m.outputs = nil
	s.planGradients(m)
	return true, nil
}

// Discard drops the micro-batches in flight and all gradients since the last Step.
func (s *Session[R]) Discard() {
	s.now = s.newUpdate()
	s.toDerive = nil
	s.deriveErr = nil
	var none R
	if s.ranks != none && s.ranks.Discard() != nil {
		s.Drop()
	}
}

// Logprobs returns the log-probabilities of a layout's targets. compute makes ranks compute those of a part of
// the layout. id stands for the part in OutOfMemory.Held. A derive may call Logprobs.
func (s *Session[R]) Logprobs(
	ctx context.Context, l *attention.Layout,
	compute func(ranks R, id int64, part *attention.Layout) ([]float32, error),
) ([]float32, error) {
	if len(l.Targets) == 0 {
		return nil, nil
	}
	var out []float32
	err := s.Attempt(ctx, func(ranks R) error {
		out = make([]float32, len(l.Targets))
		for _, part := range s.parts(l) {
			s.lastID++
			p := &piece{id: s.lastID, layout: part.Layout, targets: part.Targets}
			s.scored = p
			values, err := compute(ranks, p.id, p.layout)
			if err != nil {
				return err
			}
			for i, v := range values {
				out[p.index(i)] = v
			}
		}
		return nil
	})
	s.scored = nil
	if err != nil {
		return nil, err
	}
	return out, nil
}
