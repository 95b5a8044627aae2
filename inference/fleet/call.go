package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// grant is the instance on which a request is booked, or the error that prevented it.
type grant struct {
	state.Grant
	inst *instance
	work context.Context // inst.work at the time of the grant: ends when inst leaves or falls silent
	err  error           // if set, the other fields are not
}

// answer is the result of one try and what the machine decided about it.
type answer struct {
	inst    *instance
	out     []inference.Completion
	verdict state.Verdict
}

// call is a request that the fleet sends to its instances.
//
// A request may be tried again after any fault of an instance, because sampling has no side
// effects and the draws depend only on the seed. It is booked on at most one instance at a time:
// Settle ends a try before the next one begins. Generate returns the completions of a single try, so
// all of them come from one version; only the hints through Request.Ended may repeat or come from
// several tries.
type call struct {
	fleet *Fleet
	req   inference.Request
	state *state.Request
}

// Generate returns req.N completions in order and the ID of the instance that sampled them. After
// an instance's fault, it tries another instance, up to the configured number of attempts. A refusal
// by a busy instance and a response of other weights do not count as attempts.
//
// The error wraps ErrInvalid if two instances refuse the request as invalid or the only one does,
// ErrStale if the request is for a version other than the fleet's, ErrClosed if the fleet is closed,
// ErrNoInstance if too few instances have served for too long, and the cause of ctx if ctx has ended.
func (f *Fleet) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error) {
	invalid := req.Validate()
	f.mu.Lock()
	switch {
	case invalid != nil:
		f.invalid++
		f.mu.Unlock()
		return nil, "", fmt.Errorf("generate: %w", invalid)
	case f.closed:
		f.mu.Unlock()
		return nil, "", fmt.Errorf("generate: fleet %w", inference.ErrClosed)
	}
	f.calls.Add(1)
	f.mu.Unlock()
	defer f.calls.Done()

	c := &call{fleet: f, req: req}
	c.state = state.NewRequest(&c.req)
	var last error
	for {
		g, err := c.acquire(ctx)
		if err != nil {
			if last != nil {
				err = fmt.Errorf("%w after %w", err, last)
			}
			return nil, "", fmt.Errorf("generate: %w", err)
		}
		a := c.send(ctx, g)
		switch id := a.inst.ID(); a.verdict.Next {
		case state.Answered:
			return a.out, id, nil
		case state.Cancelled:
			return nil, "", fmt.Errorf("generate on %s: %w", id, context.Cause(ctx))
		case state.Failed:
			return nil, "", a.verdict.Err
		}
		last = a.verdict.Err
		if err := c.pause(ctx, a.verdict.Pause); err != nil {
			return nil, "", fmt.Errorf("generate: %w after %w", err, last)
		}
	}
}

// pause waits for d. It returns an error if ctx ends or the fleet closes first.
func (c *call) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.fleet.ctx.Done():
		return fmt.Errorf("fleet %w", inference.ErrClosed)
	}
}

// acquire waits until the request is booked on an instance.
func (c *call) acquire(ctx context.Context) (grant, error) {
	f := c.fleet
	f.mu.Lock()
	left, err := f.state.Enqueue(time.Now(), c.state)
	if err != nil {
		f.mu.Unlock()
		return grant{}, err
	}
	ready := make(chan grant, 1)
	f.waiting[c.state] = ready
	f.apply()
	f.mu.Unlock()
	select {
	case g := <-ready:
		return g, g.err
	default:
		return c.await(ctx, ready, left)
	}
}

// await waits for a queued request's grant. It has the machine check whether the request may still
// wait, first after left and then after what the machine returns.
func (c *call) await(ctx context.Context, ready <-chan grant, left time.Duration) (grant, error) {
	look := time.NewTimer(left)
	defer look.Stop()
	f := c.fleet
	for {
		select {
		case g := <-ready:
			return g, g.err
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.state.Leave(time.Now(), c.state)
			delete(f.waiting, c.state)
			f.apply()
			return grant{}, context.Cause(ctx)
		case <-look.C:
			f.mu.Lock()
			left, err := f.state.Look(time.Now(), c.state)
			if err != nil {
				delete(f.waiting, c.state)
			}
			f.mu.Unlock()
			if err != nil {
				return grant{}, err
			}
			look.Reset(left)
		}
	}
}

// send makes the granted call, waits for its result and settles it.
func (c *call) send(ctx context.Context, g grant) answer {
	f, i := c.fleet, g.inst
	callCtx, cancel := context.WithTimeoutCause(ctx, f.cfg.CallTimeout, overdue(f.cfg.CallTimeout))
	defer cancel()
	stop := context.AfterFunc(g.work, cancel)
	defer stop()

	req := c.req
	req.Version = g.Version
	if req.Ended != nil {
		req.Ended = func(index int, got inference.Completion) {
			good := index >= 0 && index < req.N && checkResponse(index, &got, &req, g.Checksum, f.cfg.Vocab) == nil
			if good && callCtx.Err() == nil {
				i.worked()
				c.req.Ended(index, got)
			}
		}
	}
	if i.probed() {
		f.calls.Go(func() { c.watch(callCtx, g) })
	}
	generate := func() ([]inference.Completion, error) { return i.Generate(callCtx, req) }
	out, err := within(callCtx, f.cfg.Watchdog, generate)
	switch { // the cause of a cancelled call says more than the instance's error
	case err == nil:
		err = checkAnswer(out, &req, g.Checksum, f.cfg.Vocab)
	case errors.Is(err, state.ErrStuck):
	case g.work.Err() != nil:
		err = context.Cause(g.work)
	case callCtx.Err() != nil:
		err = context.Cause(callCtx)
	}
	if exact, ok := i.Instance.(inference.Exact); ok && f.cfg.Exact && exact.Exact() {
		for k := range out {
			out[k].Reject = f.rejecter(g.Grant)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		i.quietSince, i.idleSince = time.Time{}, time.Time{}
	}
	v := f.state.Settle(time.Now(), g.Grant, state.Outcome{Completions: out, Err: err, Abandoned: ctx.Err() != nil})
	f.apply()
	return answer{inst: i, out: out, verdict: v}
}

// rejecter returns the Completion.Reject of the answer to g.
func (f *Fleet) rejecter(g state.Grant) func(cause error) {
	return func(cause error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.state.Reject(time.Now(), g, cause)
		f.apply()
	}
}

// overdue is the error of a call that has taken longer than this duration.
type overdue time.Duration

func (d overdue) Error() string { return fmt.Sprintf("timed out after %v", time.Duration(d)) }

// within returns the result of do, which should return when ctx ends. If do still runs after ctx has
// ended and d has passed since the start, within abandons it and returns an error that wraps
// state.ErrStuck. The caller passes a ctx that ends before d has passed.
func within[T any](ctx context.Context, d time.Duration, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	start := time.Now()
	done := make(chan result, 1) // has room, so that an abandoned do can end
	go func() {
		v, err := do()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	t := time.NewTimer(d - time.Since(start))
	defer t.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-t.C:
		var none T
		return none, fmt.Errorf("watchdog: no result after %v: %w", d, state.ErrStuck)
	}
}
