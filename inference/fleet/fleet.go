// Package fleet gives requests to inference instances that come, fail and go, and
// publishes each version of the weights to them.
package fleet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// Fleet is the instances that are there now. It gives each request to the
// instance with the least outstanding work among those that hold the current
// weights, and to another one where that fails. While fewer than MinServing
// serve, requests wait. Its methods may be called concurrently.
type Fleet struct {
	cfg       Config
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	publishMu sync.Mutex // one Publish at a time
	calls     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	members    []*member             // in the order they joined
	joined     int64                 // so far
	ready      indexed.Heap[*member] // that may get a request now
	growth     growth
	serving    int        // members that serve
	capacity   int        // of those
	queue      *list.List // of *waiter without an instance, first come first
	prefixes   prefixes
	current    inference.Weights
	gen        *generation
	publishing bool
	lowSince   time.Time     // when too few serve; zero while enough do, or a publish is under way
	low        bool          // as Notify was told
	enough     chan struct{} // closed when enough serve; nil where nobody waits for it
	moved      time.Time     // when a request last got an instance or left it, or a state changed
	retries    int64
	hedges     int64
	stale      int64
	invalid    int64
}

// New returns a fleet without instances.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{cfg: cfg, ctx: ctx, cancel: cancel, queue: list.New(), lowSince: time.Now(), growth: growth{share: 1}}
	f.ready = indexed.New((*member).before, func(m *member, at int) { m.at = at })
	f.gen = f.newGeneration(nil)
	return f, nil
}

// Add takes inst, which the fleet now owns and closes, into the fleet. It is
// STALE until it holds the current weights; where there are some, Add publishes
// them to it and returns when it serves. An instance whose publish fails stays
// in the fleet, and the next publish tries again. One takes the place of a
// RETIRED one of its name.
func (f *Fleet) Add(ctx context.Context, inst inference.Instance) error {
	id, capacity := inst.ID(), inst.Capacity()
	f.mu.Lock()
	old := f.find(id)
	switch {
	case f.closed:
		f.mu.Unlock()
		return fmt.Errorf("add instance %s: fleet %w", id, inference.ErrClosed)
	case old != nil && old.state != Retired:
		f.mu.Unlock()
		return fmt.Errorf("add instance %s: one of that name is in the fleet", id)
	case old != nil:
		f.takeOut(old)
	}
	f.joined++
	m := &member{inst: inst, state: Stale, at: indexed.Out, capacity: capacity, joined: f.joined}
	m.ctx, m.cancel = context.WithCancelCause(f.ctx)
	f.members = append(f.members, m)
	refresh := f.refresh(ctx, m)
	f.mu.Unlock()
	if old != nil {
		if err := old.inst.Close(); err != nil {
			return errors.Join(fmt.Errorf("add instance %s: close the one it replaces: %w", id, err), refresh())
		}
	}
	return refresh()
}

// takeOut takes m out of the fleet and ends what it does. f is locked.
func (f *Fleet) takeOut(m *member) {
	f.setState(m, Draining, nil)
	f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
	m.cancel(fmt.Errorf("instance %s removed: %w", m.inst.ID(), inference.ErrClosed))
}

// Has reports whether inst itself is in the fleet.
func (f *Fleet) Has(inst inference.Instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memberOf(inst) != nil
}

// Drain gives inst, as it was added, no more work and returns when it has none
// left. It stays in the fleet, DRAINING, until Remove.
func (f *Fleet) Drain(ctx context.Context, inst inference.Instance) error {
	f.mu.Lock()
	m := f.memberOf(inst)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("drain instance %s: not in the fleet", inst.ID())
	}
	f.setState(m, Draining, nil)
	idle := m.whenIdle()
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain instance %s: %w", inst.ID(), context.Cause(ctx))
	}
}

// Remove takes inst, as it was added, out of the fleet at once and closes it.
// What it was sampling is given to others. One of its name that took its place
// stays.
func (f *Fleet) Remove(ctx context.Context, inst inference.Instance) error {
	f.mu.Lock()
	m := f.memberOf(inst)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("remove instance %s: not in the fleet", inst.ID())
	}
	f.takeOut(m)
	idle := m.whenIdle()
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	if err := inst.Close(); err != nil {
		return fmt.Errorf("remove instance %s: %w", inst.ID(), err)
	}
	return nil
}

// Close ends all calls with ErrClosed, waits for them and closes the instances.
func (f *Fleet) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	members, gen := f.members, f.gen
	f.members = nil
	for f.queue.Len() > 0 {
		w := f.queue.Front().Value.(*waiter)
		f.unqueue(w)
		w.ready <- grant{err: fmt.Errorf("fleet %w", inference.ErrClosed)}
	}
	f.mu.Unlock()
	f.cancel()
	gen.end()
	f.calls.Wait()
	faults := make([]error, len(members))
	var closing sync.WaitGroup
	for i, m := range members {
		closing.Go(func() {
			if err := m.inst.Close(); err != nil {
				faults[i] = fmt.Errorf("close instance %s: %w", m.inst.ID(), err)
			}
		})
	}
	closing.Wait()
	return errors.Join(faults...)
}

// memberOf is what the fleet knows of inst itself, or nil. f is locked.
func (f *Fleet) memberOf(inst inference.Instance) *member {
	if m := f.find(inst.ID()); m != nil && m.inst == inst {
		return m
	}
	return nil
}

// find is the instance named id, or nil. f is locked.
func (f *Fleet) find(id string) *member {
	for _, m := range f.members {
		if m.inst.ID() == id {
			return m
		}
	}
	return nil
}
