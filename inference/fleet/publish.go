package fleet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// generation is the time from one publish to the next: all that reads its
// weights ends with it.
type generation struct {
	weights inference.Weights
	ctx     context.Context
	cancel  context.CancelFunc
	reads   sync.WaitGroup
}

func (f *Fleet) newGeneration(w inference.Weights) *generation {
	ctx, cancel := context.WithCancel(f.ctx)
	return &generation{weights: w, ctx: ctx, cancel: cancel}
}

// end stops what still reads the weights and waits for it.
func (g *generation) end() {
	g.cancel()
	g.reads.Wait()
}

// version is that of the current weights, 0 where there are none. f is locked.
func (f *Fleet) version() int64 {
	if f.current == nil {
		return 0
	}
	return f.current.Version()
}

// Publish makes w the fleet's weights: it sends them to all instances at once
// and returns when those that answered before have answered again, or their
// time is up. An instance serves again only when it reports w's checksum; the
// rest become STALE. Requests that still wait for other weights end with
// ErrStale.
//
// Instances that are DEAD, or whose last publish failed, are tried too, but
// waited for only where fewer than MinServing hold the weights without them.
// Where fewer than that do in the end, Publish waits for instances that join or
// recover, and gives ErrNoInstance when EmptyWait has passed. No instance reads
// older weights when Publish returns; w must stay as it is until the next
// Publish.
func (f *Fleet) Publish(ctx context.Context, w inference.Weights) error {
	f.publishMu.Lock()
	defer f.publishMu.Unlock()
	version := w.Version()
	if version < 1 {
		return fmt.Errorf("publish version %d: expected 1 or more", version)
	}
	old, err := f.begin(w)
	if err != nil {
		return fmt.Errorf("publish version %d: %w", version, err)
	}
	defer f.finish()
	old.end()

	awaited, late := f.refreshAll(ctx)
	faults := awaited.wait(ctx, nil)
	faults = append(faults, late.wait(ctx, f.haveEnough)...)
	f.finish()
	if f.awaitEnough(ctx) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("publish version %d: %w", version, context.Cause(ctx))
	}
	if f.ctx.Err() != nil {
		return fmt.Errorf("publish version %d: fleet %w", version, inference.ErrClosed)
	}
	return fmt.Errorf("publish version %d: %d instances hold it, expected at least %d: %w", version, f.Status().Size, f.cfg.MinServing,
		errors.Join(append([]error{inference.ErrNoInstance}, faults...)...))
}

// begin makes w the current weights, which no instance holds yet, and returns
// the generation before.
func (f *Fleet) begin(w inference.Weights) (*generation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	old := f.gen
	f.gen, f.current, f.publishing, f.prefixes = f.newGeneration(w), w, true, prefixes{}
	for _, m := range f.members {
		m.version = 0
		if m.serves() {
			f.setState(m, Stale, nil)
		}
	}
	f.checkFloor()
	var next *list.Element
	for e := f.queue.Front(); e != nil; e = next {
		next = e.Next()
		waiting := e.Value.(*waiter)
		if err := f.refuse(waiting.req); err != nil {
			f.unqueue(waiting)
			waiting.ready <- grant{err: err}
		}
	}
	return old, nil
}

// finish ends the time in which it is no news that few instances serve.
func (f *Fleet) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishing = false
	f.checkFloor()
}

func (f *Fleet) haveEnough() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.serving >= f.cfg.MinServing
}

// awaitEnough waits until enough instances serve, for EmptyWait at most, and
// reports whether they do.
func (f *Fleet) awaitEnough(ctx context.Context) bool {
	f.mu.Lock()
	if f.serving >= f.cfg.MinServing {
		f.mu.Unlock()
		return ctx.Err() == nil
	}
	if f.enough == nil {
		f.enough = make(chan struct{})
	}
	enough := f.enough
	f.mu.Unlock()
	t := time.NewTimer(f.cfg.EmptyWait)
	defer t.Stop()
	select {
	case <-enough:
		return true
	case <-t.C:
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// results are those of several publishes.
type results struct {
	done chan error
	n    int
}

// wait collects the faults until enough reports true, all results are in or ctx
// ends.
func (r *results) wait(ctx context.Context, enough func() bool) []error {
	var faults []error
	for range r.n {
		if enough != nil && enough() {
			break
		}
		select {
		case err := <-r.done:
			if err != nil {
				faults = append(faults, err)
			}
		case <-ctx.Done():
			return faults
		}
	}
	return faults
}

// refreshAll starts a publish to each instance: awaited are those that
// Publish waits for, late the others.
func (f *Fleet) refreshAll(ctx context.Context) (awaited, late results) {
	f.mu.Lock()
	defer f.mu.Unlock()
	awaited.done = make(chan error, len(f.members))
	late.done = make(chan error, len(f.members))
	for _, m := range f.members {
		if !m.mayReturn() {
			continue
		}
		to, callCtx := &awaited, ctx
		if m.state == Dead || m.refreshErr != nil {
			to, callCtx = &late, f.gen.ctx
		}
		to.n++
		refresh := f.refresh(callCtx, m)
		done := to.done
		f.gen.reads.Go(func() { done <- refresh() })
	}
	return awaited, late
}

// refresh returns the call that publishes the current weights to m and draws
// the conclusions. It belongs to the generation of the time at which refresh is
// called, with f locked, and does nothing where there are no weights.
func (f *Fleet) refresh(ctx context.Context, m *member) func() error {
	gen := f.gen
	if gen.weights == nil {
		return func() error { return nil }
	}
	gen.reads.Add(1)
	return func() error {
		defer gen.reads.Done()
		err := f.publishTo(ctx, gen, m)
		capacity, sum := m.inst.Capacity(), gen.weights.Checksum()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gen != gen {
			return nil // a newer publish has taken charge of m
		}
		if err != nil {
			f.notTaken(ctx, m, err)
			return err
		}
		m.refreshErr, m.version, m.sum, m.failures = nil, gen.weights.Version(), sum, 0
		if m.serves() {
			f.capacity += capacity - m.capacity
		}
		m.capacity = capacity
		m.epoch++
		f.setState(m, Healthy, nil)
		f.place(m)
		return nil
	}
}

// notTaken draws the conclusions from a publish to m that failed. What only
// prolongs a fall is not a new one. f is locked.
func (f *Fleet) notTaken(ctx context.Context, m *member, err error) {
	first := m.refreshErr == nil && m.state != Dead
	m.refreshErr = err
	switch {
	case errors.Is(err, errStuck):
		f.setState(m, Retired, err)
	case m.ctx.Err() != nil || !m.mayReturn():
		return
	case first && ctx.Err() == nil:
		if was := m.state; was == Stale && f.cfg.Notify != nil {
			f.cfg.Notify(Event{m.inst.ID(), was, was, err})
		}
		f.fall(m, Stale, err)
	case m.state != Dead:
		f.setState(m, Stale, err)
	}
	f.mend(m)
}

// publishTo sends gen's weights to m and compares checksums.
func (f *Fleet) publishTo(ctx context.Context, gen *generation, m *member) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.PublishTimeout, overdue(f.cfg.PublishTimeout))
	defer cancel()
	for _, ends := range []context.Context{gen.ctx, m.ctx} {
		stop := context.AfterFunc(ends, cancel)
		defer stop()
	}
	w := gen.weights
	sum, err := within(ctx, f.cfg.Watchdog, func() (string, error) { return m.inst.Publish(ctx, w) })
	if err == nil && sum != w.Checksum() {
		return fmt.Errorf("publish version %d to %s: instance reports checksum %s, expected %s", w.Version(), m.inst.ID(), sum, w.Checksum())
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, errStuck) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("publish version %d to %s: %w", w.Version(), m.inst.ID(), err)
	}
	return nil
}
