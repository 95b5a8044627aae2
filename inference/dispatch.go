package inference

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// waiter is a request in the fleet's queue.
type waiter struct {
	req   *Request
	avoid *member // failed this request last
	ready chan grant
}

// grant is an instance on which the request is booked, the version that it must
// answer with and the publish that left it there.
type grant struct {
	m       *member
	version int64
	epoch   int64
	err     error
}

// Generate returns req.N completions in order and the instance that sampled
// them. A fault of an instance is tried again on another, up to the configured
// number of tries, and so is a response of another version; an invalid request
// is not. ErrStale is the error of a request of another version than the
// fleet's, ErrClosed that of a closed fleet.
func (f *Fleet) Generate(ctx context.Context, req Request) ([]Completion, string, error) {
	if err := req.Validate(); err != nil {
		f.count(&f.invalid)
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, "", fmt.Errorf("generate: fleet %w", ErrClosed)
	}
	f.calls.Add(1)
	f.mu.Unlock()
	defer f.calls.Done()

	var avoid *member
	var last error
	for try := range f.cfg.Attempts {
		if try > 0 {
			f.count(&f.retries)
			if err := f.pause(ctx, try); err != nil {
				return nil, "", fmt.Errorf("generate: %w after %w", err, last)
			}
		}
		g, err := f.acquire(ctx, &req, avoid)
		if err != nil {
			return nil, "", fmt.Errorf("generate: %w", errors.Join(err, last))
		}
		m := g.m
		out, err := f.call(ctx, g, req)
		switch {
		case err == nil:
			return out, m.inst.ID(), nil
		case ctx.Err() != nil:
			return nil, "", fmt.Errorf("generate on %s: %w", m.inst.ID(), context.Cause(ctx))
		case errors.Is(err, ErrInvalid):
			f.count(&f.invalid)
			return nil, "", fmt.Errorf("generate on %s: %w", m.inst.ID(), err)
		}
		avoid, last = m, instanceFault(m, err)
	}
	return nil, "", fmt.Errorf("generate: no answer in %d tries: %w", f.cfg.Attempts, last)
}

// instanceFault is err as the fleet's callers see it: that one instance was
// stale or closed does not say so of the fleet.
func instanceFault(m *member, err error) error {
	if errors.Is(err, ErrStale) || errors.Is(err, ErrClosed) {
		return fmt.Errorf("generate on %s: %s", m.inst.ID(), err.Error())
	}
	return fmt.Errorf("generate on %s: %w", m.inst.ID(), err)
}

func (f *Fleet) count(n *int64) {
	f.mu.Lock()
	*n++
	f.mu.Unlock()
}

// pause waits before try, 1 being the second.
func (f *Fleet) pause(ctx context.Context, try int) error {
	d := f.cfg.Backoff
	for range try - 1 {
		d = min(2*d, f.cfg.BackoffMax)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-f.ctx.Done():
		return fmt.Errorf("fleet %w", ErrClosed)
	}
}

// acquire books req on an instance, in the order of the calls.
func (f *Fleet) acquire(ctx context.Context, req *Request, avoid *member) (grant, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return grant{}, fmt.Errorf("fleet %w", ErrClosed)
	}
	if err := f.refuse(req); err != nil {
		f.mu.Unlock()
		return grant{}, err
	}
	w := &waiter{req: req, avoid: avoid, ready: make(chan grant, 1)}
	f.queue = append(f.queue, w)
	f.dispatch()
	f.mu.Unlock()

	empty := time.NewTimer(f.cfg.EmptyWait)
	defer empty.Stop()
	for {
		var err error
		select {
		case g := <-w.ready:
			return g, g.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-empty.C:
			left := f.emptyLeft()
			if left > 0 {
				empty.Reset(left)
				continue
			}
			err = fmt.Errorf("%w for %v", ErrNoInstance, f.cfg.EmptyWait)
		}
		f.leave(w)
		return grant{}, err
	}
}

// refuse is the error of a request for other weights than the fleet's. f is
// locked.
func (f *Fleet) refuse(req *Request) error {
	if req.Version == 0 || req.Version == f.version() {
		return nil
	}
	f.stale++
	return fmt.Errorf("request of version %d, the fleet's is %d: %w", req.Version, f.version(), ErrStale)
}

// emptyLeft is how much longer a request may wait for a first instance.
func (f *Fleet) emptyLeft() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.emptySince.IsZero() {
		return f.cfg.EmptyWait
	}
	return f.cfg.EmptyWait - time.Since(f.emptySince)
}

// leave takes w out of the queue, or gives back what it was granted meanwhile.
func (f *Fleet) leave(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.queue, w); i >= 0 {
		f.queue = slices.Delete(f.queue, i, i+1)
	} else if g := <-w.ready; g.m != nil {
		g.m.give(w.req)
	}
	f.dispatch()
}

// dispatch books waiting requests, first come first, while there is room. One
// that must avoid the only instance with room lets those behind it pass. f is
// locked.
func (f *Fleet) dispatch() {
	for i := 0; i < len(f.queue); {
		w := f.queue[i]
		m := f.pick(w)
		switch {
		case m != nil:
			f.queue = slices.Delete(f.queue, i, i+1)
			m.take(w.req)
			w.ready <- grant{m: m, version: m.version, epoch: m.epoch}
		case w.avoid == nil:
			return
		default:
			i++
		}
	}
}

// pick is the instance with room that has the least work, or nil. The one that
// failed the request last is taken only where no other serves.
func (f *Fleet) pick(w *waiter) *member {
	var best *member
	least := int64(math.MaxInt64)
	others := f.serving() > 1
	for _, m := range f.members {
		if !m.serves() || !m.hasRoom(f.cfg.Ahead) || (m == w.avoid && others) {
			continue
		}
		if m.tokens < least {
			best, least = m, m.tokens
		}
	}
	return best
}

// call runs one try of req as granted and settles it.
func (f *Fleet) call(ctx context.Context, g grant, req Request) ([]Completion, error) {
	m := g.m
	callCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })
	defer stop()
	callCtx, done := context.WithTimeoutCause(callCtx, f.cfg.CallTimeout, fmt.Errorf("no answer in %v", f.cfg.CallTimeout))
	defer done()

	sent := req
	sent.Version = g.version
	out, err := m.inst.Generate(callCtx, sent)
	if err == nil {
		err = checkAnswer(out, &sent)
	} else if callCtx.Err() != nil {
		err = context.Cause(callCtx)
	}
	f.settle(ctx, g, &req, out, err)
	return out, err
}

// checkAnswer reports what is wrong with an instance's answer to req.
func checkAnswer(out []Completion, req *Request) error {
	if len(out) != req.N {
		return fmt.Errorf("%d responses, expected %d", len(out), req.N)
	}
	for i := range out {
		c := &out[i]
		switch {
		case c.Version != req.Version:
			return fmt.Errorf("response %d of version %d, expected %d: %w", i, c.Version, req.Version, ErrStale)
		case len(c.IDs) == 0:
			return fmt.Errorf("response %d has no tokens", i)
		case len(c.IDs) != len(c.Logprobs):
			return fmt.Errorf("response %d has %d tokens and %d log-probabilities", i, len(c.IDs), len(c.Logprobs))
		}
		for j, l := range c.Logprobs {
			if l64 := float64(l); math.IsNaN(l64) || math.IsInf(l64, 0) {
				return fmt.Errorf("response %d token %d has log-probability %v", i, j, l)
			}
		}
	}
	return nil
}

// settle takes the call off the instance's books and draws the conclusions from
// err.
func (f *Fleet) settle(ctx context.Context, g grant, req *Request, out []Completion, err error) {
	m := g.m
	f.mu.Lock()
	defer f.mu.Unlock()
	m.give(req)
	switch {
	case err == nil:
		m.served++
		for i := range out {
			m.generated += int64(len(out[i].IDs))
		}
		if m.epoch == g.epoch {
			m.failures = 0
			if m.state == Suspect {
				f.setState(m, Healthy, nil)
			}
		}
	case ctx.Err() != nil || m.ctx.Err() != nil || errors.Is(err, ErrInvalid):
	default:
		f.blame(m, g.epoch, err)
	}
	f.dispatch()
}

// blame is settle for a fault of the instance. What it did before its last
// publish says nothing about it. f is locked.
func (f *Fleet) blame(m *member, epoch int64, err error) {
	m.failed++
	stale := errors.Is(err, ErrStale)
	if stale {
		f.stale++
	}
	if m.epoch != epoch || !m.serves() {
		return
	}
	if stale {
		m.version = 0
		f.setState(m, Stale, err)
		f.heal(m)
		return
	}
	m.failures++
	if m.failures >= f.cfg.DeadAfter {
		f.setState(m, Dead, err)
	} else {
		f.setState(m, Suspect, err)
	}
}
