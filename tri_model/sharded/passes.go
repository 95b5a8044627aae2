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
// A replica answers twice for each one: with log-probabilities, for which the trainer returns a
// derivative, and with the end of the backward pass. Both kinds of answers come in the order in which
// the replica got its micro-batches, so neither they nor derivatives carry a number.
type batch struct {
	replica int
	layout  *attention.Layout
	derive  backend.Derive
	derived bool // the derivative is sent
}

// load is what a replica has in flight.
type load struct{ batches, rows int }

// Lanes returns the number of stages of all replicas.
func (m *Models) Lanes() int { return m.cfg.Mesh.DP * m.cfg.Mesh.PP }

// Pass sends a micro-batch to the replica with the fewest rows in flight. If all have enough, it
// waits for one.
func (m *Models) Pass(ctx context.Context, l *attention.Layout, derive backend.Derive) error {
	if err := m.Poll(ctx); err != nil {
		return err
	}
	if len(l.Targets) == 0 { // nothing to compute
		_, err := derive(backend.Logprobs{})
		return err
	}
	replica := choose(m.sent, m.cfg.Mesh.PP)
	for ; replica < 0; replica = choose(m.sent, m.cfg.Mesh.PP) {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	m.batches = append(m.batches, &batch{replica: replica, layout: l, derive: derive})
	m.sent[replica].batches++
	m.sent[replica].rows += l.Rows()
	if err := m.send(ctx, m.replica(replica), command{Action: forward, Layout: l}); err != nil {
		return err
	}
	return m.Poll(ctx)
}

// choose returns the replica with the fewest rows in flight, or -1 if each replica has more
// micro-batches in flight than stages: one waits at the first stage while the others fill the
// pipeline. Buffers of a worker rely on this limit.
func choose(sent []load, stages int) int {
	best := -1
	for i, l := range sent {
		if l.batches <= stages && (best < 0 || l.rows < sent[best].rows) {
			best = i
		}
	}
	return best
}

// Ready returns a channel that receives a value when Poll has work to do.
func (m *Models) Ready() <-chan struct{} { return m.inbox.ready }

// Idle reports whether no micro-batch is in flight.
func (m *Models) Idle() bool { return len(m.batches) == 0 }

// Poll calls derive for all log-probabilities that have arrived.
func (m *Models) Poll(ctx context.Context) error {
	return m.poll(ctx, func(b *batch, lp backend.Logprobs) ([]float32, error) { return b.derive(lp) })
}

// poll takes the answers so far and sends the derivatives that derive returns. If derive fails, later
// answers stay in the inbox for the next call.
func (m *Models) poll(ctx context.Context, derive func(*batch, backend.Logprobs) ([]float32, error)) error {
	answers := m.inbox.take()
	for len(answers) > 0 {
		a := answers[0]
		answers = answers[1:]
		replica := m.ranks[a.rank].at.DP
		if a.Action == derivative {
			m.passed(replica)
			continue
		}
		i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.replica == replica && !b.derived })
		b := m.batches[i]
		b.derived = true
		gradient, failed := derive(b, a.Logp)
		if failed != nil {
			gradient = make([]float32, len(b.layout.Targets)) // lets the micro-batch end; Discard drops it
		}
		err := m.send(ctx, m.lastStage(replica), command{Action: derivative, Values: gradient})
		if err != nil || failed != nil {
			m.inbox.putBack(answers)
			return errors.Join(failed, err)
		}
	}
	return m.inbox.err()
}

// passed removes the oldest micro-batch of a replica, which has passed through it.
func (m *Models) passed(replica int) {
	i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.replica == replica })
	m.sent[replica].batches--
	m.sent[replica].rows -= m.batches[i].layout.Rows()
	m.batches = slices.Delete(m.batches, i, i+1)
}

// wait waits for an answer and polls.
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

// Flush waits until all micro-batches are finished.
func (m *Models) Flush(ctx context.Context) error {
	for len(m.batches) > 0 {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	return m.inbox.err()
}

// Discard drops the micro-batches in flight and all gradients, unless a rank has failed: the next
// call reports that.
func (m *Models) Discard() {
	ctx := context.Background()
	none := func(b *batch, _ backend.Logprobs) ([]float32, error) {
		return make([]float32, len(b.layout.Targets)), nil
	}
	for len(m.batches) > 0 {
		if m.poll(ctx, none) != nil {
			return // the next call reports it
		}
		if len(m.batches) > 0 {
			select {
			case <-m.inbox.ready:
			case <-m.inbox.failed:
			}
		}
	}
	if m.send(ctx, m.ranks, command{Action: discard}) == nil {
		_ = m.barrier(ctx) // with ZeRO-2, ranks add to each other's sums
	}
}

// Step updates the policy of all ranks.
func (m *Models) Step(ctx context.Context, u backend.Update) (norm float64, err error) {
	if err := m.Flush(ctx); err != nil {
		return 0, err
	}
	if err := m.send(ctx, m.ranks, command{Action: update, Update: u}); err != nil {
		return 0, err
	}
	m.finite = nil
	var faults []error
	for _, r := range m.ranks {
		a, err := m.answer(r, update)
		if err != nil {
			return 0, err
		}
		r.memory = a.Memory
		if a.Norm != 0 {
			norm = a.Norm
		}
		switch {
		case a.Fault == nil:
		case errors.Is(a.Fault, model.ErrNotFinite) && !errors.Is(a.Fault, optim.ErrNonFinite):
			m.finite = a.Fault
		default:
			faults = append(faults, a.Fault)
		}
	}
	return norm, named(faults)
}

// named returns the fault that names a parameter, or the first one.
func named(faults []error) error {
	for _, f := range faults {
		if f, ok := f.(*fault); ok && !f.Remote { //nolint:errorlint // made here
			return f
		}
	}
	if len(faults) > 0 {
		return faults[0]
	}
	return nil
}

// CheckFinite returns an error that wraps model.ErrNotFinite if a weight is not finite after the
// last Step.
func (m *Models) CheckFinite() error { return m.finite }

// Score returns the log-probabilities of a layout's targets under the policy.
func (m *Models) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return m.scoreUnder(ctx, l, policy)
}

// Recompute returns the log-probabilities of a layout's targets under the last published version.
func (m *Models) Recompute(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return m.scoreUnder(ctx, l, held)
}

// scoreUnder returns a layout's log-probabilities under some weights, at the temperature of training.
func (m *Models) scoreUnder(ctx context.Context, l *attention.Layout, under which) ([]float32, error) {
	if len(l.Targets) == 0 {
		return nil, m.inbox.err()
	}
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	return m.score(ctx, l, under, 0)
}
