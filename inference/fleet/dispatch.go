package fleet

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// waiter is a request on its way to an instance.
type waiter struct {
	req   *inference.Request
	keys  []uint64 // of the prompt's beginnings
	avoid *member  // failed this request last
	ready chan grant
	place *list.Element // in the queue, nil outside
}

// grant is an instance on which a request is booked, the weights that it must
// answer with and the publish that left them there.
type grant struct {
	m       *member
	version int64
	sum     string
	epoch   int64
	err     error
}

// Generate returns req.N completions in order and the instance that sampled
// them. A fault of an instance is tried again on another, up to the configured
// number of tries; a response of other weights is tried again for as long as the
// instances that gave one are borne with. A request is invalid when two instances
// say so, or the only one. ErrStale is the error of a request of another version
// than the fleet's, ErrClosed that of a closed fleet, ErrNoInstance that of one in
// which too few have served for too long.
func (f *Fleet) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error) {
	if err := req.Validate(); err != nil {
		f.count(&f.invalid)
		return nil, "", fmt.Errorf("generate: %w", err)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, "", fmt.Errorf("generate: fleet %w", inference.ErrClosed)
	}
	f.calls.Add(1)
	f.mu.Unlock()
	defer f.calls.Done()

	w := waiter{req: &req, keys: prefixKeys(req.PromptIDs)}
	var last error
	var refused *refusal
	for try, failed := 0, 0; failed < f.cfg.Attempts; try++ {
		if try > 0 {
			if err := f.pause(ctx, try); err != nil {
				return nil, "", fmt.Errorf("generate: %w after %w", err, last)
			}
		}
		g, err := f.acquire(ctx, &w)
		if err != nil {
			return nil, "", fmt.Errorf("generate: %w", errors.Join(err, last))
		}
		if try > 0 {
			f.count(&f.retries)
		}
		a := f.attempt(ctx, g, &req)
		switch id := a.m.inst.ID(); {
		case a.err == nil:
			f.contradict(refused)
			return a.out, id, nil
		case ctx.Err() != nil:
			return nil, "", fmt.Errorf("generate on %s: %w", id, context.Cause(ctx))
		case errors.Is(a.err, inference.ErrInvalid) && (refused != nil && refused.m != a.m || !f.hasOthers(a.m)):
			f.count(&f.invalid)
			return nil, "", fmt.Errorf("generate on %s: %w", id, a.err)
		case errors.Is(a.err, inference.ErrInvalid):
			refused = &refusal{a.m, a.epoch, a.err}
		}
		if !errors.Is(a.err, inference.ErrStale) {
			failed++
		}
		w.avoid, last = a.m, instanceFault(a.m, a.err)
	}
	return nil, "", fmt.Errorf("generate: no answer in %d tries: %w", f.cfg.Attempts, last)
}

// refusal is an instance that takes a request for invalid, and the publish that
// it held then.
type refusal struct {
	m     *member
	epoch int64
	err   error
}

// hasOthers reports whether others than m serve.
func (f *Fleet) hasOthers(m *member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.serving > 1 || (f.serving == 1 && !m.serves())
}

// contradict blames who refused what another instance has done since.
func (f *Fleet) contradict(r *refusal) {
	if r == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault(r.m, r.err)
	f.blame(r.m, r.epoch, r.err)
	f.dispatch()
}

// instanceFault is err as the fleet's callers see it: that one instance was
// stale or closed does not say so of the fleet.
func instanceFault(m *member, err error) error {
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
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
		return fmt.Errorf("fleet %w", inference.ErrClosed)
	}
}

// acquire books w's request on an instance, in the order of the calls.
func (f *Fleet) acquire(ctx context.Context, w *waiter) (grant, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return grant{}, fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	if err := f.refuse(w.req); err != nil {
		f.mu.Unlock()
		return grant{}, err
	}
	since := time.Now()
	left, err := f.waitLeft(since)
	if err != nil {
		f.mu.Unlock()
		return grant{}, err
	}
	w.ready = make(chan grant, 1)
	w.place = f.queue.PushBack(w)
	f.dispatch()
	f.mu.Unlock()
	select {
	case g := <-w.ready:
		return g, g.err
	default:
		return f.await(ctx, w, since, left)
	}
}

// await is acquire for a request in the queue, which must look again in left
// whether it still may wait.
func (f *Fleet) await(ctx context.Context, w *waiter, since time.Time, left time.Duration) (grant, error) {
	look := time.NewTimer(left)
	defer look.Stop()
	for {
		var err error
		select {
		case g := <-w.ready:
			return g, g.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-look.C:
			f.mu.Lock()
			left, err = f.waitLeft(since)
			f.mu.Unlock()
			if err == nil {
				look.Reset(left)
				continue
			}
		}
		f.leave(w)
		return grant{}, err
	}
}

// refuse is the error of a request for other weights than the fleet's. f is
// locked.
func (f *Fleet) refuse(req *inference.Request) error {
	if req.Version == 0 || req.Version == f.version() {
		return nil
	}
	f.stale++
	return fmt.Errorf("request of version %d, the fleet's is %d: %w", req.Version, f.version(), inference.ErrStale)
}

// waitLeft is when a request that waits since a time must look again whether it
// still may. f is locked.
func (f *Fleet) waitLeft(since time.Time) (time.Duration, error) {
	left := f.cfg.EmptyWait
	if !f.lowSince.IsZero() {
		left -= time.Since(f.lowSince)
	}
	if left <= 0 {
		return 0, fmt.Errorf("%w: %d for %v, expected at least %d", inference.ErrNoInstance, f.serving, f.cfg.EmptyWait, f.cfg.MinServing)
	}
	if f.moved.After(since) {
		since = f.moved
	}
	quiet := f.cfg.Watchdog - time.Since(since)
	if quiet <= 0 {
		return 0, fmt.Errorf("watchdog: %d requests wait and nothing has moved for %v", f.queue.Len(), f.cfg.Watchdog)
	}
	return min(left, quiet), nil
}

// leave takes w out of the queue, or gives back what it was granted meanwhile.
func (f *Fleet) leave(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.place != nil {
		f.unqueue(w)
	} else if g := <-w.ready; g.m != nil {
		f.give(g.m, w.req)
	}
	f.dispatch()
}

func (f *Fleet) unqueue(w *waiter) {
	f.queue.Remove(w.place)
	w.place = nil
}

// dispatch books waiting requests, first come first, while there is room. One
// that must avoid the only instance with room lets those behind it pass. f is
// locked.
func (f *Fleet) dispatch() {
	if f.serving < f.cfg.MinServing {
		return
	}
	var next *list.Element
	for e := f.queue.Front(); e != nil && f.ready.Len() > 0; e = next {
		next = e.Next()
		w := e.Value.(*waiter)
		if m := f.pick(w); m != nil {
			f.unqueue(w)
			w.ready <- f.book(m, w)
		}
	}
}

// pick is the instance with room that has the least work, or one that has the
// prompt's beginning and room at once and hardly more work; nil where there is
// none. The one that failed the request last is taken only where no other
// serves.
func (f *Fleet) pick(w *waiter) *member {
	avoid := w.avoid
	if f.serving == 1 {
		avoid = nil
	}
	best := f.least(avoid)
	if best == nil || w.keys == nil {
		return best
	}
	home := f.prefixes.home(w.keys)
	if home == nil || home == avoid || home.at == indexed.Out || home.tokens > best.tokens+work(w.req) {
		return best
	}
	if home.grows(f.growth.share)+float64(w.req.N) > float64(home.capacity) {
		return best
	}
	return home
}

// book gives w's request to m. f is locked.
func (f *Fleet) book(m *member, w *waiter) grant {
	m.take(w.req)
	f.place(m)
	f.moved = time.Now()
	f.prefixes.note(w.keys, m)
	return grant{m: m, version: m.version, sum: m.sum, epoch: m.epoch}
}

// give takes a request off m's books. f is locked.
func (f *Fleet) give(m *member, req *inference.Request) {
	m.give(req)
	f.place(m)
	f.moved = time.Now()
}
