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

// gang is a set of ranks that started together.
type gang struct {
	ranks  []*rank // by number; nil until they are connected
	events chan event
	launch *launch // nil if others start the ranks
}

// start starts the ranks, or waits for them, and makes them load the recovery point.
func (s *crew) start(ctx context.Context) (g *gang, err error) {
	g = &gang{ranks: make([]*rank, s.cfg.world()), events: make(chan event, 16*s.cfg.world())}
	defer func() {
		if err != nil {
			g.close()
			g = nil
		}
	}()
	token := s.cfg.Token
	if s.cfg.Python != "" {
		if g.launch, err = startLaunch(&s.cfg, s.listener.Addr().String()); err != nil {
			return g, err
		}
		token = g.launch.token
	}
	if err := g.gather(ctx, &s.cfg, s.listener, token, s.notify); err != nil {
		return g, g.explain(err)
	}
	if err := g.welcome(ctx, &s.cfg, s.point); err != nil {
		return g, g.explain(err)
	}
	return g, nil
}

// explain adds the cause from torchrun's output to an error if torchrun has ended. If torchrun
// reports a rank that a signal killed, the error is that rank's fault: what other ranks report
// follows from it.
func (g *gang) explain(err error) error {
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

// hindsight is how long a session waits for the cause of a rank's failure.
const hindsight = time.Second

// lackOfMemory waits up to hindsight for another rank to report that it ran out of memory, and returns
// that fault in place of failed. When a rank ends, those that compute with it fail too, and their
// reports may arrive first.
func (g *gang) lackOfMemory(failed *fault) *fault {
	if errors.As(failed, new(*exhausted)) || !errors.Is(failed, errFailed) && !errors.Is(failed, errClosed) {
		return failed
	}
	left := map[*rank]bool{}
	for _, r := range g.ranks {
		if r.name() != failed.rank {
			left[r] = true
		}
	}
	timeout := time.NewTimer(hindsight)
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
func (g *gang) gather(ctx context.Context, cfg *Config, from *listener, token string, notify func()) error {
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
			return fmt.Errorf("%s of %d not connected to %s within %v%s", g.missing(), len(g.ranks), from.Addr(), cfg.Deadlines.Join, refused)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (g *gang) drop(r *rank) {
	if g.ranks[r.hello.Rank] == r {
		g.ranks[r.hello.Rank] = nil
		r.close()
	}
}

// missing names the ranks that are not connected, such as "rank 1" or "ranks 1, 3 and 12 others".
func (g *gang) missing() string {
	const most = 8
	var names []string
	for i, r := range g.ranks {
		if r == nil {
			names = append(names, strconv.Itoa(i))
		}
	}
	switch {
	case len(names) == 1:
		return "rank " + names[0]
	case len(names) > most:
		return fmt.Sprintf("ranks %s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "ranks " + strings.Join(names, ", ")
}

// welcome makes the ranks load their models.
func (g *gang) welcome(ctx context.Context, c *Config, from point) error {
	m := wire.Welcome{Model: c.Model, State: from.state, Updates: from.updates, Reference: c.Reference, DP: c.DP, TP: c.TP,
		DType: c.DType, Mode: c.Mode, Recompute: c.Recompute, Temperature: c.Temperature, Optimizer: c.Optimizer, LoRA: c.LoRA}
	err := g.exchange(ctx, m, "load models", c.Deadlines.Load, func(r *rank, f *wire.Frame) error { return f.Decode(&r.ready) })
	if err != nil {
		return err
	}
	first := &g.ranks[0].ready
	for _, r := range g.ranks {
		switch {
		case r.ready.Mode != wire.Free && r.ready.Mode != wire.Lockstep:
			return r.fault(fmt.Errorf("mode is %s, expected %q or %q", wire.Quote(r.ready.Mode), wire.Free, wire.Lockstep))
		case r.ready.Mode != first.Mode || r.ready.Parameters != first.Parameters || r.ready.Vocabulary != first.Vocabulary:
			return r.fault(fmt.Errorf("mode is %s, with %d parameters and %d tokens, expected %s, %d and %d as on rank 0",
				r.ready.Mode, r.ready.Parameters, r.ready.Vocabulary, first.Mode, first.Parameters, first.Vocabulary))
		}
	}
	return nil
}

// close ends all ranks and waits for their goroutines and for torchrun.
func (g *gang) close() {
	for _, r := range g.ranks {
		if r != nil {
			r.close()
		}
	}
	g.launch.kill()
}

// exchange sends a message to all ranks and waits until each has answered.
func (g *gang) exchange(ctx context.Context, m wire.Message, name string, within time.Duration, accept func(r *rank, f *wire.Frame) error) error {
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
func (g *gang) receive(ctx context.Context) error {
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
func (g *gang) poll() (found bool, err error) {
	select {
	case e := <-g.events:
		return true, g.handle(e)
	default:
		return false, g.late()
	}
}

func (g *gang) handle(e event) error {
	switch {
	case g.ranks[e.rank.hello.Rank] != e.rank: // dropped
		return nil
	case e.err != nil:
		return e.rank.fault(e.err)
	}
	return e.rank.answer(&e.frame)
}

func (g *gang) lockstep() bool { return g.ranks[0].ready.Mode == wire.Lockstep }

// deadline returns the earliest deadline of an answer, or the zero time.
func (g *gang) deadline() time.Time {
	var first time.Time
	for _, r := range g.ranks {
		if at := r.deadline(); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func (g *gang) late() error {
	now := time.Now()
	for _, r := range g.ranks {
		if err := r.late(now); err != nil {
			return err
		}
	}
	return nil
}
