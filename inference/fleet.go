package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// FleetConfig says how a fleet bears with its instances.
type FleetConfig struct {
	// MinServing is how many instances must hold the weights after a publish.
	MinServing int
	// Attempts is how often a request is tried, on one instance after another.
	Attempts int
	// CallTimeout ends one try; it includes the wait in the instance's own
	// queue.
	CallTimeout time.Duration
	// PublishTimeout ends one instance's publish.
	PublishTimeout time.Duration
	// EmptyWait is how long a request waits while no instance serves.
	EmptyWait time.Duration
	// Backoff is the pause before the second try; each further pause is twice
	// as long, up to BackoffMax.
	Backoff, BackoffMax time.Duration
	// DeadAfter is the number of failures in a row that make an instance DEAD.
	DeadAfter int
	// Ahead is how much work an instance is given beyond its capacity, as a
	// share of it, so that it has more at hand when a response ends.
	Ahead float64
	// Notify, where set, hears each change of state. It is called with the
	// fleet locked and must not call the fleet.
	Notify func(Event)
}

// Event is a change of an instance's state; Err is its cause, where one is known.
type Event struct {
	ID       string
	From, To State
	Err      error
}

// DefaultFleetConfig suits instances that answer within minutes.
func DefaultFleetConfig() FleetConfig {
	return FleetConfig{
		MinServing: 1, Attempts: 5, DeadAfter: 3, Ahead: 0.5,
		CallTimeout: 30 * time.Minute, PublishTimeout: 10 * time.Minute, EmptyWait: 2 * time.Minute,
		Backoff: 200 * time.Millisecond, BackoffMax: 10 * time.Second,
	}
}

// Validate reports all faults of c.
func (c *FleetConfig) Validate() error {
	var faults []error
	atLeast := func(name string, v, low int) {
		if v < low {
			faults = append(faults, fmt.Errorf("%s %d, expected at least %d", name, v, low))
		}
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("%s %v, expected more than 0", name, d))
		}
	}
	atLeast("fleet: min serving", c.MinServing, 1)
	atLeast("fleet: attempts", c.Attempts, 1)
	atLeast("fleet: dead after", c.DeadAfter, 1)
	positive("fleet: call timeout", c.CallTimeout)
	positive("fleet: publish timeout", c.PublishTimeout)
	positive("fleet: empty wait", c.EmptyWait)
	positive("fleet: backoff", c.Backoff)
	if c.BackoffMax < c.Backoff {
		faults = append(faults, fmt.Errorf("fleet: largest backoff %v, expected at least the first, %v", c.BackoffMax, c.Backoff))
	}
	if !(c.Ahead >= 0) || math.IsInf(c.Ahead, 0) {
		faults = append(faults, fmt.Errorf("fleet: ahead %v, expected 0 or more", c.Ahead))
	}
	return errors.Join(faults...)
}

// Fleet is the instances that are there now. It gives each request to the
// instance with the least outstanding work among those that hold the current
// weights, and to another one where that fails. Its methods may be called
// concurrently.
type Fleet struct {
	cfg       FleetConfig
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	publishMu sync.Mutex // one Publish at a time
	calls     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	members    []*member // in the order they joined
	queue      []*waiter // requests without an instance, first come first
	current    Weights
	gen        *generation
	emptySince time.Time // when the last serving instance was lost; zero while one serves
	retries    int64
	stale      int64
	invalid    int64
}

// NewFleet returns a fleet without instances.
func NewFleet(cfg FleetConfig) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{cfg: cfg, ctx: ctx, cancel: cancel, emptySince: time.Now()}
	f.gen = f.newGeneration(nil)
	return f, nil
}

// Add takes inst, which the fleet now owns and closes, into the fleet. It is
// STALE until it holds the current weights; where there are some, Add publishes
// them to it and returns when it serves. An instance whose publish fails stays
// in the fleet, and the next publish tries again.
func (f *Fleet) Add(ctx context.Context, inst Instance) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fmt.Errorf("add instance %s: fleet %w", inst.ID(), ErrClosed)
	}
	if f.find(inst.ID()) != nil {
		f.mu.Unlock()
		return fmt.Errorf("add instance %s: one of that name is in the fleet", inst.ID())
	}
	m := &member{inst: inst, state: Stale}
	m.ctx, m.cancel = context.WithCancelCause(f.ctx)
	f.members = append(f.members, m)
	refresh := f.refresh(ctx, m)
	f.mu.Unlock()
	return refresh()
}

// Drain gives instance id no more work and returns when it has none left. It
// stays in the fleet, DRAINING, until Remove.
func (f *Fleet) Drain(ctx context.Context, id string) error {
	f.mu.Lock()
	m := f.find(id)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("drain instance %s: not in the fleet", id)
	}
	f.setState(m, Draining, nil)
	idle := m.whenIdle()
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain instance %s: %w", id, context.Cause(ctx))
	}
}

// Remove takes instance id out of the fleet at once and closes it. What it was
// sampling is given to others.
func (f *Fleet) Remove(ctx context.Context, id string) error {
	f.mu.Lock()
	m := f.find(id)
	if m == nil {
		f.mu.Unlock()
		return fmt.Errorf("remove instance %s: not in the fleet", id)
	}
	f.setState(m, Draining, nil)
	f.members = slices.DeleteFunc(f.members, func(o *member) bool { return o == m })
	idle := m.whenIdle()
	f.mu.Unlock()
	m.cancel(fmt.Errorf("instance %s removed: %w", id, ErrClosed))
	select {
	case <-idle:
	case <-ctx.Done():
	}
	if err := m.inst.Close(); err != nil {
		return fmt.Errorf("remove instance %s: %w", id, err)
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
	for _, w := range f.queue {
		w.ready <- grant{err: fmt.Errorf("fleet %w", ErrClosed)}
	}
	f.queue = nil
	f.mu.Unlock()
	f.cancel()
	gen.end()
	f.calls.Wait()
	var faults []error
	for _, m := range members {
		if err := m.inst.Close(); err != nil {
			faults = append(faults, fmt.Errorf("close instance %s: %w", m.inst.ID(), err))
		}
	}
	return errors.Join(faults...)
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
