package torch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/torch/wire"
)

// group is a set of ranks that started together. The ranks compute together, so if one fails, the session
// replaces the complete group.
type group struct {
	cfg     *Config
	ranks   []*rank          // by number; elements are nil until the ranks are connected
	events  chan event       // from the goroutines of all ranks
	memory  []wire.Memory    // the session's, by rank
	launch  *launch          // nil if the session did not start the ranks
	answers []session.Answer // for Receive and Poll
	epoch   int              // number of calls of Discard, before which answers do not count
}

func newGroup(cfg *Config, memory []wire.Memory) *group {
	n := cfg.world()
	return &group{cfg: cfg, memory: memory, ranks: make([]*rank, n), events: make(chan event, 16*n)}
}

// explain adds the cause from torchrun's output to an error if torchrun has ended. If torchrun
// reports that a signal killed a rank, the result is that rank's fault, because the errors of other ranks
// follow from it.
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
		err = &session.Fault{Rank: name, Err: fmt.Errorf("%w: %s", errKilled, signal)}
	} else if text := cause(output); text != "" && !errors.Is(err, errFailed) { // a rank that failed sent that text
		err = fmt.Errorf("%w: %s", err, text)
	}
	return fmt.Errorf("%w; see %s", err, g.launch.output)
}

// Diagnose implements session.Ranks.
func (g *group) Diagnose(f *session.Fault) error {
	f = g.findOutOfMemory(f)
	if errors.As(f, new(*session.OutOfMemory)) {
		return f
	}
	return g.explain(f)
}

// causeTime is how long findOutOfMemory waits for reports of other ranks.
const causeTime = time.Second

// findOutOfMemory waits up to causeTime for another rank's report that it ran out of memory, and returns
// that fault, or failed if there is none. When a rank ends, the ranks that compute with it fail too, and
// their reports may arrive before that of the cause.
func (g *group) findOutOfMemory(failed *session.Fault) *session.Fault {
	rankEnded := errors.Is(failed, errFailed) || errors.Is(failed, errClosed)
	if errors.As(failed, new(*session.OutOfMemory)) || !rankEnded {
		return failed
	}
	unheard := map[*rank]bool{} // ranks that may still report
	for _, r := range g.ranks {
		if r.name() != failed.Rank {
			unheard[r] = true
		}
	}
	timeout := time.NewTimer(causeTime)
	defer timeout.Stop()
	for len(unheard) > 0 {
		select {
		case e := <-g.events:
			if e.err == nil && e.frame.Kind != (wire.Failed{}).Kind() {
				continue
			}
			delete(unheard, e.rank)
			var other *session.Fault
			if e.err == nil && errors.As(e.rank.answer(&e.frame), &other) &&
				errors.As(other, new(*session.OutOfMemory)) {
				return other
			}
		case <-timeout.C:
			return failed
		}
	}
	return failed
}

// gather waits until all ranks are connected, for Deadlines.Join at most.
func (g *group) gather(ctx context.Context, from *listener, token string, notify func()) error {
	cfg := g.cfg
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
			g.drop(e.rank) // the user's launcher may start it again
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

// drop removes a rank whose connection has ended, so that it can connect again.
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

// welcome makes the ranks load their models and the recovery point from, and checks that all agree.
func (g *group) welcome(ctx context.Context, from session.Point) error {
	c := g.cfg
	m := wire.Welcome{
		Model: c.Model, State: from.Folder, Updates: from.Updates, Reference: c.Reference,
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

// Close implements session.Ranks. It also waits for torchrun.
func (g *group) Close() {
	for _, r := range g.ranks {
		if r != nil {
			r.close()
		}
	}
	g.launch.kill()
}

// end asks the ranks to exit and waits until they have, for grace at most.
func (g *group) end(grace time.Duration) {
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	connected := map[*rank]bool{}
	for _, r := range g.ranks {
		connected[r] = true
		_ = r.send(wire.End{}, wire.Body{}) // if it fails, closing the connection ends the rank
	}
	for late := false; len(connected) > 0 && !late; {
		select {
		case e := <-g.events:
			if e.err != nil {
				delete(connected, e.rank)
			}
		case <-timeout.C:
			late = true
		}
	}
}

// exchange sends a message to all ranks and waits until each has answered. It calls accept with each
// answer; an error of accept is the fault of that rank. name is the request's name in errors.
func (g *group) exchange(
	ctx context.Context, m wire.Message, name string, within time.Duration, accept func(r *rank, f *wire.Frame) error,
) error {
	frame, err := wire.Encode(m, wire.Body{})
	if err != nil {
		return err
	}
	missing := len(g.ranks) // answers
	for _, r := range g.ranks {
		if err := r.queue(frame); err != nil {
			return err
		}
		r.expect(expectation{name, within, func(f *wire.Frame) error {
			missing--
			return accept(r, f)
		}})
	}
	for missing > 0 {
		if err := g.receive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for an event and handles it. It returns a fault if an answer is overdue before that.
func (g *group) receive(ctx context.Context) error {
	timer := time.NewTimer(time.Hour) // without a deadline the duration does not matter: late then returns nil
	defer timer.Stop()
	if deadline := g.Deadline(); !deadline.IsZero() {
		timer.Reset(time.Until(deadline))
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

// handle returns the fault of an event, or passes a frame to the answer that is expected.
func (g *group) handle(e event) error {
	switch {
	case g.ranks[e.rank.hello.Rank] != e.rank: // drop has removed the rank
		return nil
	case e.err != nil:
		return e.rank.fault(e.err)
	}
	return e.rank.answer(&e.frame)
}

// Deadline implements session.Ranks: it returns the earliest deadline of an answer.
func (g *group) Deadline() time.Time {
	var first time.Time
	for _, r := range g.ranks {
		if t := r.deadline(); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// late returns the fault of a rank whose next answer is overdue, or nil.
func (g *group) late() error {
	now := time.Now()
	for _, r := range g.ranks {
		if err := r.late(now); err != nil {
			return err
		}
	}
	return nil
}
