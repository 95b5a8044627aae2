package torch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/schedule"
	"github.com/easyrl/easyrl/torch/wire"
)

// micro is a micro-batch. It lives until the next recovery point, because a restart repeats it.
//
// Its states: pieces are planned (cut); log-probabilities arrive (answered) until none is missing; it waits
// in Session.toDerive; evaluate calls derive, which sets gradient; its gradients are planned
// (planGradients). A restart repeats the pieces, but never calls derive again.
type micro struct {
	update   *update
	layout   *attention.Layout // a copy of Pass's
	derive   backend.Derive    // nil after it has returned
	outputs  *backend.Outputs  // nil before the first answer and after derive
	gradient []float32         // derivative of the loss for each target; nil before derive has returned
	whole    *piece            // the only piece; nil if the micro-batch is cut into several or has none yet
	missing  int               // number of pieces whose log-probabilities derive still needs
}

// piece is the unit that a replica computes at once: a micro-batch, or a part of one that does not fit a
// rank's memory.
type piece struct {
	id      int64
	of      *micro // nil for a piece of ScoreAs
	layout  *attention.Layout
	targets []int // index of each target among the micro-batch's; nil if the piece is the only one
	// probe is set if the piece only computes log-probabilities, for a derive that needs those of
	// all pieces. Its gradients are zero.
	probe    bool
	answered bool // whether its log-probabilities are stored in the micro-batch
}

// Lanes returns the number of replicas. Each computes one micro-batch at a time.
func (s *Session) Lanes() int { return s.cfg.DP }

// Idle reports whether no micro-batch is in flight.
func (s *Session) Idle() bool { return s.now.plan.Idle() }

// Ready returns a channel that receives a value when Poll has answers to handle or may detect a failure.
func (s *Session) Ready() <-chan struct{} { return s.ready }

// Pass waits until a replica has room for a micro-batch and sends it. This call, or a later one
// of Pass, Poll, Flush or Step, calls derive, exactly once even if ranks fail. After a derive
// returns an error, all of them return that error until Discard.
func (s *Session) Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error {
	if s.deriveErr != nil {
		return s.deriveErr
	}
	if len(l.Targets) == 0 { // nothing to compute
		_, err := derive(backend.Outputs{})
		return err
	}
	m := &micro{update: s.now, layout: l.Clone(), derive: derive}
	s.now.micros = append(s.now.micros, m)
	s.cut(m)
	err := s.attempt(ctx, func(g *group) error { return s.work(ctx, g, schedule.More, s.now.plan.Room) })
	if err == nil {
		s.notify() // Poll may start an incomplete round
	}
	return err
}

// Poll handles the answers that have arrived. It does not wait for more.
func (s *Session) Poll(ctx context.Context) error {
	return s.attempt(ctx, func(g *group) error {
		for {
			found, err := g.poll()
			if err != nil {
				return err
			}
			if !found {
				return s.work(ctx, g, schedule.Later, func() bool { return true })
			}
		}
	})
}

// Flush waits until all micro-batches are finished.
func (s *Session) Flush(ctx context.Context) error {
	return s.attempt(ctx, func(g *group) error { return s.finish(ctx, g) })
}

// finish works until all micro-batches of the update are finished.
func (s *Session) finish(ctx context.Context, g *group) error {
	return s.work(ctx, g, schedule.None, s.now.plan.Idle)
}

// work sends messages that are due, calls derive for answered micro-batches, and receives answers, until
// done returns true. next says which micro-batches follow those of now. A derive may call Score, which
// replaces ranks that fail. Then g has ended, and work returns errReplaced.
func (s *Session) work(ctx context.Context, g *group, next schedule.Outlook, done func() bool) error {
	for {
		if err := s.order(g, s.now, next); err != nil {
			return err
		}
		derived, err := s.evaluate()
		switch {
		case err != nil:
			return err
		case s.group != g:
			return errReplaced
		case derived: // messages may be due
			continue
		case done():
			return nil
		}
		if err := g.receive(ctx); err != nil {
			return err
		}
	}
}

// order sends the messages of an update's plan that are due.
func (s *Session) order(g *group, u *update, next schedule.Outlook) error {
	for _, message := range u.plan.Due(next) {
		p := u.pieces[message.ID] // nil for an empty micro-batch
		first := message.Replica * s.cfg.TP
		replica := g.ranks[first : first+s.cfg.TP]
		var frame []byte
		var err error
		if message.Kind == schedule.Forward {
			frame, err = s.forward(replica[0], message.ID, p)
		} else {
			frame, err = s.backward(replica[0], message, p, u)
		}
		if err != nil {
			return err
		}
		for _, r := range replica {
			if err := r.queue(frame); err != nil {
				return err
			}
		}
	}
	return nil
}

// forward returns a forward message as a frame and makes r expect its answer. p is nil for an empty
// micro-batch.
func (s *Session) forward(r *rank, id int64, p *piece) ([]byte, error) {
	var body wire.Body
	if p != nil {
		body = wire.Layout(p.layout)
		r.allow(len(p.layout.Targets))
	}
	r.expect(expectation{"forward", s.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Logprobs
		if err := f.Decode(&a); err != nil {
			return err
		}
		if a.ID != id {
			return fmt.Errorf("id is %d, expected %d", a.ID, id)
		}
		if p == nil {
			if !f.Empty() {
				return errors.New("arrays for an empty micro-batch")
			}
			return nil
		}
		r.trace("forward", a.Seconds)
		return s.answered(p, f)
	}})
	return wire.Encode(wire.Forward{ID: id}, body)
}

// answered stores a piece's log-probabilities. Once a micro-batch has all of them, answered
// queues it for derive.
func (s *Session) answered(p *piece, f *wire.Frame) error {
	out := backend.Outputs{Values: backend.Values{}}
	var err error
	take := func(name string) []float32 {
		values := f.Float32s(name)
		if expected := len(p.layout.Targets); len(values) != expected && err == nil {
			err = fmt.Errorf("array %s has %d values, expected %d", name, len(values), expected)
		}
		return values
	}
	out.Values[backend.Policy] = take(string(backend.Policy))
	out.Entropy = take("entropy")
	if s.cfg.Reference != "" {
		out.Values[backend.Reference] = take(string(backend.Reference))
	}
	m := p.of
	if err != nil || p.answered || m.gradient != nil || m.update.discarded {
		return err // the values are repeated, or not needed
	}
	p.answered = true
	m.store(p, &out)
	m.missing--
	if m.missing > 0 {
		return nil
	}
	if s.fresh {
		m.outputs.Values[backend.OldPolicy] = m.outputs.Values[backend.Policy]
		m.outputs.Values[backend.Sampler] = m.outputs.Values[backend.Policy]
	}
	s.toDerive = append(s.toDerive, m)
	return nil
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

// evaluate calls derive for the micro-batches in toDerive and reports whether there were any. Called from
// within a derive, it does nothing. After an error of a derive it returns that error until Discard.
func (s *Session) evaluate() (derived bool, err error) {
	if s.deriveErr != nil || s.deriving {
		return false, s.deriveErr
	}
	for len(s.toDerive) > 0 {
		m := s.toDerive[0]
		s.toDerive = s.toDerive[1:]
		s.deriving = true
		gradients, err := m.derive(*m.outputs)
		s.deriving = false
		values := gradients[backend.Policy]
		if expected := len(m.layout.Targets); err == nil && len(values) != expected {
			err = fmt.Errorf("torch: the loss has %d derivatives, expected %d", len(values), expected)
		}
		if err != nil {
			s.deriveErr = err
			return true, err
		}
		m.gradient = slices.Clone(values)
		m.derive = nil
		m.outputs = nil
		s.planGradients(m)
		derived = true
	}
	return derived, nil
}

// backward returns a backward message as a frame and makes r expect its answer. p is nil for an empty
// micro-batch.
func (s *Session) backward(r *rank, message schedule.Message, p *piece, u *update) ([]byte, error) {
	var body wire.Body
	if p != nil {
		body.AddFloat32s("gradient", p.gradient())
	}
	r.expect(expectation{"backward", s.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Passed
		if err := f.Decode(&a); err != nil {
			return err
		}
		if a.ID != message.ID {
			return fmt.Errorf("id is %d, expected %d", a.ID, message.ID)
		}
		if p != nil {
			r.trace("backward", a.Seconds)
		}
		u.plan.Passed(message.Replica, message.ID)
		return nil
	}})
	return wire.Encode(wire.Backward{ID: message.ID}, body)
}

// Discard drops the micro-batches in flight and all gradients since the last Step.
func (s *Session) Discard() {
	s.now.discarded = true
	s.now = s.newUpdate()
	s.toDerive = nil
	s.deriveErr = nil
	if s.group == nil {
		return
	}
	for _, r := range s.group.ranks {
		if r.send(wire.Discard{}, wire.Body{}) != nil { // the rank does not read
			s.dropRanks()
			return
		}
	}
}
