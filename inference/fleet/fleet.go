// Package fleet dispatches requests to inference instances that join, fail and leave, and
// publishes each version of the weights to them.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// Fleet manages the instances of a run. A state.Machine makes the decisions; the fleet calls the
// instances and reads the clock. Its methods may be called concurrently.
//
// To report an event, the fleet locks mu, calls a method of the machine, calls apply, and unlocks
// mu. So each effect is carried out once and in the order of the events. Calls to instances may
// block, so they run without mu.
type Fleet struct {
	cfg       Config
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	publishMu sync.Mutex     // held by Publish; taken before mu
	calls     sync.WaitGroup // Generate's calls and the goroutines of watch and rest; Close waits for them

	mu            sync.Mutex // guards the fields below and those of instances
	closed        bool
	state         *state.Machine
	instances     map[state.Handle]*instance
	waiting       map[*state.Request]chan grant  // per queued request; the channel gets one grant and has room for it
	idle          map[state.Handle]chan struct{} // per draining or removed instance; closed when it has no request left
	enoughServing chan struct{}                  // closed when enough instances serve; nil unless Publish waits
	gen           *generation                    // of the current weights
	invalid       int64                          // number of requests refused before any instance saw them
}

// New returns a fleet without instances.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{
		cfg: cfg, ctx: ctx, cancel: cancel, state: state.New(cfg.Config, time.Now()),
		instances: map[state.Handle]*instance{}, waiting: map[*state.Request]chan grant{},
		idle: map[state.Handle]chan struct{}{},
	}
	f.gen = newGeneration(f, nil)
	return f, nil
}

// apply carries out the effects of an event. It starts goroutines for what may block. f is locked.
func (f *Fleet) apply() {
	e := f.state.Take()
	for _, event := range e.Events {
		if f.cfg.Notify != nil {
			f.cfg.Notify(event)
		}
	}
	if f.enoughServing != nil && f.enough() {
		close(f.enoughServing)
		f.enoughServing = nil
	}
	for _, g := range e.Grants {
		inst := f.instances[g.Instance]
		f.deliver(g.Request, grant{Grant: g, inst: inst, work: inst.work})
	}
	for _, r := range e.Refusals {
		f.deliver(r.Request, grant{err: r.Err})
	}
	for _, o := range e.Orders {
		publish := f.gen.publisher(f.gen.ctx, f.instances[o.Instance], o)
		f.gen.reads.Go(func() { _ = publish() }) // publish has reported its outcome to the machine
	}
	for _, p := range e.Probes {
		gen, inst := f.gen, f.instances[p.Instance]
		gen.reads.Go(func() { gen.probeUntilServing(inst, p) })
	}
	for _, r := range e.Rests {
		f.calls.Go(func() { f.rest(r) })
	}
	for _, h := range e.Idle {
		if idle := f.idle[h]; idle != nil {
			close(idle)
			delete(f.idle, h)
		}
	}
}

// rest waits out the pause r and reports its end. It returns early if f closes.
func (f *Fleet) rest(r state.Rest) {
	if sleep(f.ctx, r.For) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Rested(time.Now(), r.Instance)
	f.apply()
}

// deliver ends the wait of a queued request. f is locked.
func (f *Fleet) deliver(r *state.Request, g grant) {
	f.waiting[r] <- g
	delete(f.waiting, r)
}

// Add adds inst to the fleet. inst is STALE until it holds the current weights. If there are
// weights, Add publishes them to inst and returns when it serves. If the publish fails, Add returns
// an error, but inst stays in the fleet, and a probe or the next publish tries again. inst replaces
// a RETIRED instance with the same ID. Once inst is in the fleet, which Has reports, the fleet owns
// and closes it.
func (f *Fleet) Add(ctx context.Context, inst inference.Instance) error {
	id, capacity := inst.ID(), inst.Capacity()
	added := &instance{Instance: inst, fleet: f, asking: make(chan struct{}, 1)}
	f.mu.Lock()
	order, replaced, err := f.state.Join(time.Now(), id, capacity, added.probed())
	if err != nil {
		f.mu.Unlock()
		return fmt.Errorf("add instance %s: %w", id, err)
	}
	old := f.instances[replaced]
	if old != nil {
		delete(f.instances, replaced)
		old.leave()
	}
	added.handle = order.Instance
	added.ctx, added.cancel = context.WithCancelCause(f.ctx)
	added.work, added.cancelWork = context.WithCancelCause(added.ctx)
	f.instances[added.handle] = added
	publish := f.gen.publisher(ctx, added, order)
	f.apply()
	f.mu.Unlock()
	if old != nil {
		if err := old.Close(); err != nil {
			return errors.Join(fmt.Errorf("add instance %s: close the instance it replaces: %w", id, err), publish())
		}
	}
	return publish()
}

// find returns the fleet's record of the value inst, or nil. Another instance with the same ID does not
// count. f is locked.
func (f *Fleet) find(inst inference.Instance) *instance {
	for _, i := range f.instances {
		if i.ID() == inst.ID() && i.Instance == inst {
			return i
		}
	}
	return nil
}

// whenIdle returns a channel that closes when a draining or removed instance has no request. busy says whether
// it has one now. f is locked.
func (f *Fleet) whenIdle(h state.Handle, busy bool) <-chan struct{} {
	idle := f.idle[h]
	if idle == nil {
		idle = make(chan struct{})
		f.idle[h] = idle
	}
	if !busy {
		close(idle)
		delete(f.idle, h)
	}
	return idle
}

// Has reports whether inst, the value passed to Add, is in the fleet.
func (f *Fleet) Has(inst inference.Instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(inst) != nil
}

// Drain sends inst no more requests and returns when it has none left or ctx ends. inst must be the
// value passed to Add. It stays in the fleet, DRAINING, until Remove.
func (f *Fleet) Drain(ctx context.Context, inst inference.Instance) error {
	f.mu.Lock()
	i := f.find(inst)
	if i == nil {
		f.mu.Unlock()
		return fmt.Errorf("drain instance %s: not in the fleet", inst.ID())
	}
	idle := f.whenIdle(i.handle, f.state.Drain(time.Now(), i.handle))
	f.apply()
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain instance %s: %w", inst.ID(), context.Cause(ctx))
	}
}

// Remove removes inst from the fleet at once and gives its requests to other instances. It waits until
// its running requests have ended or ctx ends, and closes inst; publishes and probes may still run.
// inst must be the value passed to Add; an instance with the same ID that has replaced it stays.
func (f *Fleet) Remove(ctx context.Context, inst inference.Instance) error {
	f.mu.Lock()
	i := f.find(inst)
	if i == nil {
		f.mu.Unlock()
		return fmt.Errorf("remove instance %s: not in the fleet", inst.ID())
	}
	idle := f.whenIdle(i.handle, f.state.Remove(time.Now(), i.handle))
	delete(f.instances, i.handle)
	i.leave()
	f.apply()
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
	instances, gen := f.instances, f.gen
	f.instances = nil
	f.state.Close()
	f.apply()
	f.mu.Unlock()
	f.cancel()
	gen.end()
	f.calls.Wait()
	faults := make([]error, len(instances))
	var closing sync.WaitGroup
	for i, h := range slices.Sorted(maps.Keys(instances)) {
		closing.Go(func() {
			if err := instances[h].Close(); err != nil {
				faults[i] = fmt.Errorf("close instance %s: %w", instances[h].ID(), err)
			}
		})
	}
	closing.Wait()
	return errors.Join(faults...)
}
