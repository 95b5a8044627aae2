package sharded

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/tensor"
	"github.com/easyrl/easyrl/optim"
)

// flight is a micro-batch in flight: from Forward until the first stage has run it backward.
//
// A replica answers twice for each micro-batch: with log-probabilities, to which the trainer replies with a
// derivative, and at the end of the backward pass. Both kinds of answers come in the order in which the
// replica got its micro-batches, so neither answers nor derivatives carry an ID.
type flight struct {
	id       int64
	targets  int
	answered bool      // whether its log-probabilities have arrived
	gradient []float32 // derivative of its loss; nil before Backward
}

// Forward implements session.Ranks. A replica has at most one micro-batch more in flight than it has stages
// (the depth of the session's plan), and the channels of a worker have room for that many.
func (w *world) Forward(replica int, id int64, l *attention.Layout, sampler int64) error {
	w.inFlight[replica] = append(w.inFlight[replica], flight{id: id, targets: len(l.Targets)})
	w.forwarded[replica] = append(w.forwarded[replica], id)
	return w.send(w.replica(replica), command{Action: forward, Layout: l, Version: sampler})
}

// Backward implements session.Ranks. The last stage gets the derivative only after it has answered, because
// its schedule counts the micro-batches that wait for one.
func (w *world) Backward(replica int, id int64, gradient []float32) error {
	flights := w.inFlight[replica]
	f := &flights[slices.IndexFunc(flights, func(f flight) bool { return f.id == id })]
	f.gradient = gradient
	if !f.answered {
		return nil
	}
	return w.send(w.lastStage(replica), command{Action: derivative, Values: gradient})
}

// Receive implements session.Ranks.
func (w *world) Receive(ctx context.Context) (session.Answer, error) {
	for {
		if a, found, err := w.Poll(); found || err != nil {
			return a, err
		}
		select {
		case <-w.inbox.ready:
		case <-ctx.Done():
			return session.Answer{}, ctx.Err()
		}
	}
}

// Poll implements session.Ranks.
func (w *world) Poll() (out session.Answer, found bool, err error) {
	if len(w.answers) == 0 {
		w.answers = w.inbox.take()
	}
	if len(w.answers) == 0 {
		return out, false, w.failure()
	}
	a := &w.answers[0]
	w.answers = w.answers[1:]
	out.Replica = w.ranks[a.rank].at.DP
	flights := w.inFlight[out.Replica]
	if a.Action == derivative {
		out.ID = flights[0].id
		w.inFlight[out.Replica] = flights[1:]
		return out, true, nil
	}
	f := &flights[slices.IndexFunc(flights, func(f flight) bool { return !f.answered })]
	f.answered = true
	out.ID = f.id
	out.Outputs = &a.Outputs
	if f.gradient != nil {
		err = w.Backward(out.Replica, f.id, f.gradient)
	}
	return out, true, err
}

// Discard implements session.Ranks. It waits for the micro-batches, with derivatives of zero.
func (w *world) Discard() error {
	for replica := range w.inFlight {
		for len(w.inFlight[replica]) > 0 {
			for _, f := range w.inFlight[replica] {
				if f.gradient == nil {
					if err := w.Backward(replica, f.id, make([]float32, f.targets)); err != nil {
						return err
					}
				}
			}
			if _, err := w.Receive(context.Background()); err != nil {
				return err
			}
		}
	}
	clear(w.forwarded)
	if err := w.send(w.ranks, command{Action: discard}); err != nil {
		return err
	}
	return w.barrier() // with ZeRO-2, a rank could otherwise add new sums to another one's before that clears its own
}

// Deadline implements session.Ranks. There is none: the transport detects a rank that has died or hangs.
func (w *world) Deadline() time.Time { return time.Time{} }

// Diagnose implements session.Ranks. The transport has already found the cause.
func (w *world) Diagnose(f *session.Fault) error { return f }

// Step implements session.Ranks.
func (w *world) Step(_ context.Context, u backend.Update) (out session.Outcome, err error) {
	if err := w.send(w.ranks, command{Action: update, Update: u}); err != nil {
		return out, err
	}
	defer clear(w.forwarded)
	var faults []*fault
	for _, r := range w.ranks {
		a, err := w.answer(r, update)
		if err != nil {
			return out, err
		}
		r.memory = a.Memory
		if a.Total != nil {
			w.addLinear(&out, r, &a)
		}
		if a.Norm != 0 {
			out.Norm = a.Norm // the same on all ranks
		}
		switch {
		case a.Fault == nil:
		case errors.Is(a.Fault, model.ErrNotFinite) && !errors.Is(a.Fault, optim.ErrNonFinite):
			out.Weights = a.Fault
		default:
			faults = append(faults, a.Fault)
		}
	}
	out.Skipped = named(faults)
	return out, nil
}

// addLinear adds a rank's linear sums to those of all ranks. Of tensors that tensor ranks copy, the first one's count.
func (w *world) addLinear(out *session.Outcome, r *rank, a *answer) {
	params := w.shape.Params()
	if out.Total == nil {
		out.Passes, out.Total = map[int64][]uint64{}, make([]uint64, len(params))
	}
	for i := range r.params {
		p := &r.params[i]
		whole := slices.IndexFunc(params, func(q tensor.Param) bool { return q.Name == p.Name })
		out.Total[whole] += a.Total[i]
		if r.at.TP > 0 && p.Whole.Share == tensor.Copied {
			continue
		}
		for k, id := range w.forwarded[r.at.DP] {
			if out.Passes[id] == nil {
				out.Passes[id] = make([]uint64, len(params))
			}
			out.Passes[id][whole] += a.Passes[k][i]
		}
	}
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

// swap sends swapOut or swapIn and waits for all answers, so that none is left for the next command. If
// several ranks cannot swap, it returns the error of the first.
func (w *world) swap(direction action) error {
	if err := w.send(w.ranks, command{Action: direction}); err != nil {
		return err
	}
	var failed error
	for i, r := range w.ranks {
		a, err := w.answer(r, direction)
		if err != nil {
			return err
		}
		if a.Fault != nil && failed == nil {
			failed = a.Fault.of(i)
		}
	}
	return failed
}

// score computes a layout's log-probabilities under a version, 0 for the policy, on the first replica. No
// micro-batch may be in flight. A temperature of 0 is that of training.
func (w *world) score(l *attention.Layout, version int64, temperature float32) ([]float32, error) {
	c := command{Action: score, Layout: l, Version: version, Temperature: temperature}
	if err := w.send(w.replica(0), c); err != nil {
		return nil, err
	}
	a, err := w.answer(w.lastStage(0)[0], score)
	return a.Outputs.Values[backend.Policy], err
}

// Score implements backend.Models.
func (m *Models) Score(ctx context.Context, l *attention.Layout) ([]float32, error) {
	return m.scoreUnder(ctx, l, 0)
}

// Recompute implements backend.Models.
func (m *Models) Recompute(ctx context.Context, l *attention.Layout, version int64) ([]float32, error) {
	return m.scoreUnder(ctx, l, version)
}

// scoreUnder returns the log-probabilities of a layout's targets under a version, 0 for the policy, at the
// temperature of training.
func (m *Models) scoreUnder(ctx context.Context, l *attention.Layout, version int64) ([]float32, error) {
	if err := m.Flush(ctx); err != nil {
		return nil, err
	}
	return m.Logprobs(ctx, l, func(w *world, _ int64, part *attention.Layout) ([]float32, error) {
		return w.score(part, version, 0)
	})
}
