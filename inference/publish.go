package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// generation is the time from one publish to the next: all that reads its
// weights ends with it.
type generation struct {
	weights Weights
	ctx     context.Context
	cancel  context.CancelFunc
	reads   sync.WaitGroup
}

func (f *Fleet) newGeneration(w Weights) *generation {
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
// It is an error where fewer than that do in the end. No instance reads older
// weights when Publish returns; w must stay as it is until the next Publish.
func (f *Fleet) Publish(ctx context.Context, w Weights) error {
	f.publishMu.Lock()
	defer f.publishMu.Unlock()
	if w.Version() < 1 {
		return fmt.Errorf("publish version %d: expected 1 or more", w.Version())
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fmt.Errorf("publish version %d: fleet %w", w.Version(), ErrClosed)
	}
	old := f.gen
	f.gen, f.current = f.newGeneration(w), w
	for _, m := range f.members {
		m.version = 0
		if m.serves() {
			f.setState(m, Stale, nil)
		}
	}
	f.refuseQueued()
	f.mu.Unlock()
	old.end()

	awaited, late := f.refreshAll(ctx)
	faults := awaited.wait(ctx, nil)
	faults = append(faults, late.wait(ctx, func() bool { return f.size() >= f.cfg.MinServing })...)
	if ctx.Err() != nil {
		return fmt.Errorf("publish version %d: %w", w.Version(), context.Cause(ctx))
	}
	if n := f.size(); n < f.cfg.MinServing {
		return fmt.Errorf("publish version %d: %d instances hold it, expected at least %d: %w", w.Version(), n, f.cfg.MinServing,
			errors.Join(append([]error{ErrNoInstance}, faults...)...))
	}
	return nil
}

// refuseQueued fails the requests in the queue that ask for other weights. f is
// locked.
func (f *Fleet) refuseQueued() {
	f.queue = slices.DeleteFunc(f.queue, func(w *waiter) bool {
		err := f.refuse(w.req)
		if err != nil {
			w.ready <- grant{err: err}
		}
		return err != nil
	})
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
		if m.state == Draining {
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

// size is the number of instances that serve.
func (f *Fleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.serving()
}

// heal publishes the current weights again to an instance that turned out not
// to hold them. f is locked.
func (f *Fleet) heal(m *member) {
	if f.closed {
		return
	}
	refresh := f.refresh(f.gen.ctx, m)
	f.gen.reads.Go(func() { _ = refresh() }) // the outcome is m's state
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
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gen != gen {
			return nil // a newer publish has taken charge of m
		}
		m.refreshErr = err
		if err != nil {
			if m.state != Dead {
				f.setState(m, Stale, err)
			}
			return err
		}
		m.version, m.failures = gen.weights.Version(), 0
		m.epoch++
		f.setState(m, Healthy, nil)
		return nil
	}
}

// publishTo sends gen's weights to m and compares checksums.
func (f *Fleet) publishTo(ctx context.Context, gen *generation, m *member) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.PublishTimeout, fmt.Errorf("no answer in %v", f.cfg.PublishTimeout))
	defer cancel()
	for _, ends := range []context.Context{gen.ctx, m.ctx} {
		stop := context.AfterFunc(ends, cancel)
		defer stop()
	}
	w := gen.weights
	sum, err := m.inst.Publish(ctx, w)
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && sum != w.Checksum():
		err = fmt.Errorf("instance reports checksum %s, expected %s", sum, w.Checksum())
	}
	if err != nil {
		return fmt.Errorf("publish version %d to %s: %w", w.Version(), m.inst.ID(), err)
	}
	return nil
}
