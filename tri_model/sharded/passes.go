package sharded

import (
	"context"
	"errors"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
)

// batch is a micro-batch in flight: from Pass until the first stage has run it backward.
//
// A replica answers twice for each micro-batch: with log-probabilities, for which the trainer returns a
// derivative, and at the end of the backward pass. Both kinds of answers come in the order in which the
// replica got its micro-batches, so neither answers nor derivatives carry a number.
type batch struct {
	replica int
	layout  *attention.Layout
	derive  backend.Derive
	derived bool // whether its log-probabilities have arrived and derive was called
}

// load is the number of micro-batches that a replica has in flight, and of their rows.
type load struct{ batches, rows int }

// Lanes returns the number of stages of all replicas.
func (m *Models) Lanes() int { return m.cfg.Mesh.DP * m.cfg.Mesh.PP }

// Pass sends a micro-batch to the replica with the fewest rows in flight. While all replicas have as many
// micro-batches as they may (see choose), it waits. It calls derive in this or a later call, as Poll does.
func (m *Models) Pass(ctx context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	if err := m.Poll(ctx); err != nil {
		return err
	}
	if len(l.Targets) == 0 { // nothing to compute
		_, err := derive(backend.Outputs{})
		return err
	}
	replica := choose(m.loads, m.cfg.Mesh.PP)
	for ; replica < 0; replica = choose(m.loads, m.cfg.Mesh.PP) {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	m.batches = append(m.batches, &batch{replica: replica, layout: l, derive: derive})
	m.loads[replica].batches++
	m.loads[replica].rows += l.Rows()
	if err := m.send(ctx, m.replica(replica), command{Action: forward, Layout: l, Version: sampler}); err != nil {
		return err
	}
	return m.Poll(ctx)
}

// choose returns the replica with the fewest rows in flight, or -1 if every replica already has the
// maximum of stages+1 micro-batches in flight: one for each stage, and one that waits at the first
// stage. The channels of a worker rely on this limit.
func choose(loads []load, stages int) int {
	best := -1
	for i, l := range loads {
		if l.batches <= stages && (best < 0 || l.rows < loads[best].rows) {
			best = i
		}
	}
	return best
}

// Ready returns a channel that receives a value when Poll has answers to handle, or a failure to return.
func (m *Models) Ready() <-chan struct{} { return m.inbox.ready }

// Idle reports whether no micro-batch is in flight.
func (m *Models) Idle() bool { return len(m.batches) == 0 }

// Poll calls the derive functions of the micro-batches whose log-probabilities have arrived, and sends
// the derivatives to their replicas. It does not wait.
func (m *Models) Poll(ctx context.Context) error {
	return m.poll(ctx, func(b *batch, out backend.Outputs) (backend.Values, error) { return b.derive(out) })
}

// poll handles the answers in the inbox and sends the derivatives that derive returns. If derive fails,
// later answers stay in the inbox for the next call.
func (m *Models) poll(ctx context.Context, derive func(*batch, backend.Outputs) (backend.Values, error)) error {
	answers := m.inbox.take()
	for len(answers) > 0 {
		a := answers[0]
		answers = answers[1:]
		replica := m.ranks[a.rank].at.DP
		if a.Action == derivative {
			m.removeOldest(replica)
			continue
		}
		i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.replica == replica && !b.derived })
		b := m.batches[i]
		b.derived = true
		gradients, deriveErr := derive(b, a.Outputs)
		gradient := gradients[backend.Policy]
		if deriveErr != nil {
			gradient = make([]float32, len(b.layout.Targets)) // lets the micro-batch end; Discard clears the sums
		}
		err := m.send(ctx, m.lastStage(replica), command{Action: derivative, Values: gradient})
		if err != nil || deriveErr != nil {
			m.inbox.putBack(answers)
			return errors.Join(deriveErr, err)
		}
	}
	return m.inbox.err()
}

// removeOldest removes the oldest micro-batch of a replica from those in flight.
func (m *Models) removeOldest(replica int) {
	i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.replica == replica })
	m.loads[replica].batches--
	m.loads[replica].rows -= m.batches[i].layout.Rows()
	m.batches = slices.Delete(m.batches, i, i+1)
}

// wait waits until Ready, and polls. It fails if a rank fails or ctx ends.
func (m *Models) wait(ctx context.Context) error {
	select {
	case <-m.inbox.ready:
		return m.Poll(ctx)
	case <-m.inbox.failed:
		return m.inbox.err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Flush waits until no micro-batch is in flight.
func (m *Models) Flush(ctx context.Context) error {
	for len(m.batches) > 0 {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	return m.inbox.err()
}

// Discard lets the micro-batches in flight end, without calling their derive functions, and clears all
// gradients. If a rank has failed, Discard does nothing, and the next call returns that failure.
func (m *Models) Discard() {
	ctx := context.Background()
	zeros := func(b *batch, _ backend.Outputs) (backend.Values, error) {
		return backend.Values{backend.Policy: make([]float32, len(b.layout.Targets))}, nil
	}
	for len(m.batches) > 0 {
		if m.poll(ctx, zeros) != nil {
			return
		}
		if len(m.batches) > 0 {
			select {
			case <-m.inbox.ready:
			case <-m.inbox.failed:
			}
		}
	}
	if m.send(ctx, m.ranks, command{Action: discard}) == nil {
		_ = m.barrier(ctx) // with ZeRO-2, a rank could otherwise add new sums to another one's before it clears them
	}
}

// Step updates the policy of all ranks. norm is that of the scaled gradients before clipping. If a
// gradient is not finite, no rank updates, and the error wraps optim.ErrNonFinite.
func (m *Models) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if err := m.Flush(ctx); err != nil {
		return 0, err
	}
	if err := m.send(ctx, m.ranks, command{Action: update, Update: u}); err != nil {
		return 0, err
	}
	m.finiteErr = nil
	var faults []*fault
	for _, r := range m.ranks {
		a, err := m.answer(r, update)
		if err != nil {
			return 0, err
		}
		r.memory = a.Memory
		if a.Norm != 0 {
			norm = a.Norm // the same on all ranks
		}
		switch {
		case a.Fault == nil:
		case errors.Is(a.Fault, model.ErrNotFinite) && !errors.Is(a.Fault, optim.ErrNonFinite):
			m.finiteErr = a.Fault // the update is done; CheckFinite returns the error
		default:
			faults = append(faults, a.Fault)
		}
	}
	return norm, named(faults)
}

// named returns the first fault whose cause is on the rank that reports it, because its text names the
// parameter. If there is none, it returns the first fault, or nil.
func named(faults []*fault) error {
	for _, f := range faults {
		if !f.Remote {
			return f
		}
	}
	if len(faults) > 0 {
		return faults[0]
	}
	return nil
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight was not finite after the
// last Step.
func (m *Models) CheckFinite() error { return m.finiteErr }

// Score returns the log-probabilities of a layout's targets under the policy.
func (m *Models) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return m.scoreUnder(ctx, l, 0)
}

// Recompute returns the log-probabilities of a layout's targets under a published version that is kept.
func (m *Models) Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error) {
	return m.scoreUnder(ctx, l, version)
}

// scoreUnder returns the log-probabilities of a layout's targets under a version, 0 for the policy, at the
// temperature of training.
func (m *Models) scoreUnder(ctx context.Context, l *attention.Layout, version int64) ([]float32, error) {
	if len(l.Targets) == 0 {
		return nil, m.inbox.err()
	}
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	return m.score(ctx, l, version, 0)
}
