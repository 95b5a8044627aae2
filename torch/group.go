package torch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/torch/wire"
)

// group is a set of ranks that started together. A session replaces it as a whole: the ranks compute
// together, so none of them is of use without the others.
type group struct {
	ranks  []*rank // by number; nil until they are connected
	events chan event
	launch *launch // nil if others start the ranks
}

// explain adds the cause from torchrun's output to an error if torchrun has ended. If torchrun
// reports a rank that a signal killed, the error is that rank's fault: what other ranks report
// follows from it.
func (g *group) explain(err error) error {
	if g.launch == nil || !g.launch.ended(err) {
		return err
	}
	output := g.launch.tail()
	if number, signal := killed(output); signal != "" {
		name := fmt.Sprintf("rank %d", number)
		if 0 <= number && number < len(g.ranks) && g.ranks[number] != nil {
			name = g.ranks[number].name()
		}
		err = &fault{name, fmt.Errorf("%w: %s", errKilled, signal)}
	} else if said := cause(output); said != "" && !errors.Is(err, errFailed) { // the output repeats what a rank sent
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w; see %s", err, g.launch.output)
}

// causeTime is how long a session waits for the cause of a rank's failure.
const causeTime = time.Second

// lackOfMemory waits up to causeTime for another rank to report that it ran out of memory, and returns
// that fault in place of failed. When a rank ends, those that compute with it fail too, and their
// reports may arrive first.
func (g *group) lackOfMemory(failed *fault) *fault {
	if errors.As(failed, new(*exhausted)) || !errors.Is(failed, errFailed) && !errors.Is(failed, errClosed) {
		return failed
	}
	left := map[*rank]bool{}
	for _, r := range g.ranks {
		if r.name() != failed.rank {
			left[r] = true
		}
	}
	timeout := time.NewTimer(causeTime)
	defer timeout.Stop()
	for len(left) > 0 {
		select {
		case e := <-g.events:
			if e.err == nil && e.frame.Kind != (wire.Failed{}).Kind() {
				continue
			}
			delete(left, e.rank)
			var other *fault
			if e.err == nil && errors.As(e.rank.answer(&e.frame), &other) && errors.As(other, new(*exhausted)) {
				return other
			}
		case <-timeout.C:
			return failed
		}
	}
	return failed
}

// gather waits until all ranks are connected.
func (g *group) gather(ctx context.Context, cfg *Config, from *listener, token string, notify func()) error {
	timeout := time.NewTimer(cfg.Deadlines.Join)
	defer timeout.Stop()
	refused := ""
	for slices.Contains(g.ranks, nil) {
		select {
		case a := <-from.arrivals:
			why := a.check(token, len(g.ranks))
			if why == "" && g.ranks[a.hello.Rank] != nil {
				why = "the rank is taken"
			}
			if why != "" {
				a.refuse(why)
				refused = fmt.Sprintf("; refused %s: %s", a.name(), why)
				continue
			}
			r := newRank(a, cfg.Rows(a.hello.Rank))
			g.ranks[a.hello.Rank] = r
			r.start(g.events, notify, cfg.Silence, cfg.Deadlines.Pass)
		case e := <-g.events:
			if e.err == nil || g.launch != nil {
				if err := g.handle(e); err != nil {
					return err
				}
				continue
			}
			g.drop(e.rank) // it may be started again
		case <-g.launch.done():
			return errors.New("torchrun ended")
		case <-timeout.C:
			return fmt.Errorf("%s of %d not connected to %s within %v%s",
				g.missing(), len(g.ranks), from.Addr(), cfg.Deadlines.Join, refused)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// drop forgets a rank whose connection has ended.
func (g *group) drop(r *rank) {
	if g.ranks[r.hello.Rank] == r {
		g.ranks[r.hello.Rank] = nil
		r.close()
	}
}

// missing names the ranks that are not connected, such as "rank 1" or "ranks 1, 3 and 12 others".
func (g *group) missing() string {
	const maxNamed = 8
	var names []string
	for i, r := range g.ranks {
		if r == nil {
			names = append(names, strconv.Itoa(i))
		}
	}
	switch {
	case len(names) == 1:
		return "rank " + names[0]
	case len(names) > maxNamed:
		return fmt.Sprintf("ranks %s and %d others", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return "ranks " + strings.Join(names, ", ")
}

// welcome makes the ranks load their models.
func (g *group) welcome(ctx context.Context, c *Config, from point) error {
	m := wire.Welcome{
		Model: c.Model, State: from.state, Updates: from.updates, Reference: c.Reference,
		DP: c.DP, TP: c.TP, DType: c.DType, Mode: c.Mode, Recompute: c.Recompute,
		Temperature: c.Temperature, Optimizer: c.Optimizer, LoRA: c.LoRA,
	}
	decode := func(r *rank, f *wire.Frame) error { return f.Decode(&r.ready) }
	err := g.exchange(ctx, m, "load models", c.Deadlines.Load, decode)
	if err != nil {
		return err
	}
	first := &g.ranks[0].ready
	for _, r := range g.ranks {
		switch {
		case r.ready.Mode != wire.Free && r.ready.Mode != wire.Lockstep:
			return r.fault(fmt.Errorf("mode is %s, expected %q or %q", wire.Quote(r.ready.Mode), wire.Free,
				wire.Lockstep))
		case r.ready.Mode != first.Mode || r.ready.Parameters != first.Parameters ||
			r.ready.Vocabulary != first.Vocabulary:
			return r.fault(
				fmt.Errorf("mode is %s, with %d parameters and %d tokens, expected %s, %d and %d as on rank 0",
					r.ready.Mode, r.ready.Parameters, r.ready.Vocabulary, first.Mode, first.Parameters,
					first.Vocabulary))
		}
	}
	return nil
}

// close ends all ranks and waits for their goroutines and for torchrun.
func (g *group) close() {
	for _, r := range g.ranks {
		if r != nil {
			r.close()
		}
	}
	g.launch.kill()
}

// end asks the ranks to exit and closes their connections after at most grace.
func (g *group) end(grace time.Duration) {
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	left := map[*rank]bool{}
	for _, r := range g.ranks {
		left[r] = true
		_ = r.send(wire.End{}, wire.Body{}) // if it fails, closing the connection ends the rank
	}
	for late := false; len(left) > 0 && !late; {
		select {
		case e := <-g.events:
			if e.err != nil {
				delete(left, e.rank)
			}
		case <-timeout.C:
			late = true
		}
	}
	g.close()
}

// exchange sends a message to all ranks and waits until each has answered.
func (g *group) exchange(
	ctx context.Context, m wire.Message, name string, within time.Duration, accept func(r *rank, f *wire.Frame) error,
) error {
	frame, err := wire.Encode(m, wire.Body{})
	if err != nil {
		return err
	}
	left := len(g.ranks)
	for _, r := range g.ranks {
		if err := r.queue(frame); err != nil {
			return err
		}
		r.expect(expectation{name, within, func(f *wire.Frame) error {
			left--
			return accept(r, f)
		}})
	}
	for left > 0 {
		if err := g.receive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for an event and handles it.
func (g *group) receive(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if at := g.deadline(); !at.IsZero() {
		timer.Reset(time.Until(at))
	}
	select {
	case e := <-g.events:
		return g.handle(e)
	case <-timer.C:
		return g.late()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// poll handles an event if there is one.
func (g *group) poll() (found bool, err error) {
	select {
	case e := <-g.events:
		return true, g.handle(e)
	default:
		return false, g.late()
	}
}

// handle returns the fault of an event, or passes a frame to the answer that is expected.
func (g *group) handle(e event) error {
	switch {
	case g.ranks[e.rank.hello.Rank] != e.rank: // dropped
		return nil
	case e.err != nil:
		return e.rank.fault(e.err)
	}
	return e.rank.answer(&e.frame)
}

// lockstep reports whether all replicas need the same sequence of messages; see wire.Lockstep.
func (g *group) lockstep() bool { return g.ranks[0].ready.Mode == wire.Lockstep }

// deadline returns the earliest deadline of an answer, or the zero time.
func (g *group) deadline() time.Time {
	var first time.Time
	for _, r := range g.ranks {
		if at := r.deadline(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// late returns a fault of a rank whose next answer is overdue.
func (g *group) late() error {
	now := time.Now()
	for _, r := range g.ranks {
		if err := r.late(now); err != nil {
			return err
		}
	}
	return nil
}
