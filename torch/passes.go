package torch

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/wire"
)

// replica returns the ranks of a replica. They all get its messages, and the first answers.
func (g *group) replica(n int) []*rank {
	first := n * g.cfg.TP
	return g.ranks[first : first+g.cfg.TP]
}

// queue sends a message to some ranks, as one frame.
func (g *group) queue(to []*rank, m wire.Message, body wire.Body) error {
	frame, err := wire.Encode(m, body)
	if err != nil {
		return err
	}
	for _, r := range to {
		if err := r.queue(frame); err != nil {
			return err
		}
	}
	return nil
}

// Forward implements session.Ranks.
func (g *group) Forward(replica int, id int64, l *attention.Layout, _ int64) error {
	ranks := g.replica(replica)
	r := ranks[0]
	var body wire.Body
	if l != nil {
		body = wire.Layout(l)
		r.allow(len(l.Targets))
	}
	epoch := g.epoch
	r.expect(expectation{"forward", g.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Logprobs
		if err := f.Decode(&a); err != nil {
			return err
		}
		if a.ID != id {
			return fmt.Errorf("id is %d, expected %d", a.ID, id)
		}
		if l == nil {
			if !f.Empty() {
				return errors.New("arrays for an empty micro-batch")
			}
			return nil
		}
		r.trace("forward", a.Seconds)
		out, err := g.outputs(f, len(l.Targets))
		if err == nil && epoch == g.epoch {
			g.answers = append(g.answers, session.Answer{Replica: replica, ID: id, Outputs: out})
		}
		return err
	}})
	return g.queue(ranks, wire.Forward{ID: id}, body)
}

// outputs returns the outputs in a frame, which must have a value for each of n targets.
func (g *group) outputs(f *wire.Frame, n int) (*backend.Outputs, error) {
	var err error
	take := func(name string) []float32 {
		values := f.Float32s(name)
		if len(values) != n && err == nil {
			err = fmt.Errorf("array %s has %d values, expected %d", name, len(values), n)
		}
		return values
	}
	out := &backend.Outputs{Values: backend.Values{}}
	out.Values[backend.Policy] = take(string(backend.Policy))
	out.Entropy = take("entropy")
	if g.cfg.Reference != "" {
		out.Values[backend.Reference] = take(string(backend.Reference))
	}
	return out, err
}

// Backward implements session.Ranks.
func (g *group) Backward(replica int, id int64, gradient []float32) error {
	ranks := g.replica(replica)
	r := ranks[0]
	var body wire.Body
	if gradient != nil {
		body.AddFloat32s("gradient", gradient)
	}
	epoch := g.epoch
	r.expect(expectation{"backward", g.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Passed
		if err := f.Decode(&a); err != nil {
			return err
		}
		if a.ID != id {
			return fmt.Errorf("id is %d, expected %d", a.ID, id)
		}
		if gradient != nil {
			r.trace("backward", a.Seconds)
		}
		if epoch == g.epoch {
			g.answers = append(g.answers, session.Answer{Replica: replica, ID: id})
		}
		return nil
	}})
	return g.queue(ranks, wire.Backward{ID: id}, body)
}

// Receive implements session.Ranks. The answers of micro-batches that arrive while another call waits for its
// own are queued.
func (g *group) Receive(ctx context.Context) (session.Answer, error) {
	if len(g.answers) == 0 {
		if err := g.receive(ctx); err != nil {
			return session.Answer{}, err
		}
	}
	return g.answer(), nil
}

// Poll implements session.Ranks.
func (g *group) Poll() (a session.Answer, found bool, err error) {
	if len(g.answers) == 0 {
		select {
		case e := <-g.events:
			err = g.handle(e)
		default:
			return a, false, g.late()
		}
	}
	return g.answer(), true, err
}

// answer takes a queued answer. It is zero if there is none.
func (g *group) answer() (a session.Answer) {
	if len(g.answers) > 0 {
		a = g.answers[0]
		g.answers = g.answers[1:]
	}
	return a
}

// Discard implements session.Ranks. It fails if a rank does not read.
func (g *group) Discard() error {
	g.epoch++
	g.answers = nil
	return g.queue(g.ranks, wire.Discard{}, wire.Body{})
}

// score makes the ranks compute the log-probabilities of a layout.
func (g *group) score(ctx context.Context, m wire.Score, l *attention.Layout) (values []float32, err error) {
	first := g.ranks[0]
	done := false
	first.allow(len(l.Targets))
	first.expect(expectation{"score", g.cfg.Deadlines.Pass, func(f *wire.Frame) error {
		var a wire.Logprobs
		if err := f.Decode(&a); err != nil {
			return err
		}
		values = f.Float32s("policy")
		if a.ID != m.ID || len(values) != len(l.Targets) {
			return fmt.Errorf("id is %d with %d values, expected %d with %d", a.ID, len(values), m.ID, len(l.Targets))
		}
		done = true
		return nil
	}})
	// Scoring may need all replicas; the first rank answers.
	if err := g.queue(g.ranks, m, wire.Layout(l)); err != nil {
		return nil, err
	}
	for !done {
		if err := g.receive(ctx); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Step implements session.Ranks. It checks that all ranks report the same outcome.
func (g *group) Step(ctx context.Context, u backend.Update) (session.Outcome, error) {
	m := wire.Step{Update: u.Number, Scale: u.Scale, LR: u.LR, Clip: u.Clip}
	answers := make([]wire.Stepped, len(g.ranks))
	err := g.exchange(ctx, m, "step", g.cfg.Deadlines.Pass, func(r *rank, f *wire.Frame) error {
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
		g.memory[r.hello.Rank] = a.Memory
		return nil
	})
	if err != nil {
		return session.Outcome{}, err
	}
	first := &answers[0]
	for i := range answers {
		if a := &answers[i]; a.Finite != first.Finite || a.WeightsFinite != first.WeightsFinite {
			return session.Outcome{}, g.ranks[i].fault(fmt.Errorf(
				"step: finite is %v for gradients and %v for weights, expected %v and %v as on rank 0",
				a.Finite, a.WeightsFinite, first.Finite, first.WeightsFinite))
		}
	}
	var out session.Outcome
	if first.Norm != nil {
		out.Norm = *first.Norm
	}
	if !first.Finite {
		out.Skipped = fmt.Errorf("optimizer step %d: gradients: %w", u.Number, optim.ErrNonFinite)
	}
	if !first.WeightsFinite {
		out.Weights = fmt.Errorf("weights after update %d: %w", u.Number, model.ErrNotFinite)
	}
	return out, nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
