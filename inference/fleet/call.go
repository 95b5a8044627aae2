package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// errStuck is a call that did not return when its time was up.
var errStuck = errors.New("the call did not end with its deadline")

// answer is what came of one call.
type answer struct {
	m     *member
	epoch int64 // of the publish that the call went by
	out   []inference.Completion
	err   error
}

// attempt is one try of req as granted. A straggler's request is given to a
// second instance; the first good answer ends the other call.
func (f *Fleet) attempt(ctx context.Context, g grant, req *inference.Request) answer {
	if f.cfg.HedgeAfter == 0 {
		return f.call(ctx, g, req)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("another instance answered first"))
	answers := make(chan answer, 2)
	start := func(g grant) { f.calls.Go(func() { answers <- f.call(ctx, g, req) }) }
	start(g)
	running := 1
	late := time.NewTimer(f.cfg.HedgeAfter)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			if second, ok := f.hedge(g.m, req); ok {
				start(second)
				running++
			} else {
				late.Reset(f.cfg.HedgeAfter)
			}
		case a := <-answers:
			running--
			if a.err == nil || errors.Is(a.err, inference.ErrInvalid) || running == 0 {
				return a
			}
		}
	}
}

// hedge books req on another instance than m, if one has room now.
func (f *Fleet) hedge(m *member, req *inference.Request) (grant, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.refuse(req) != nil {
		return grant{}, false
	}
	second := f.least(m)
	if second == nil {
		return grant{}, false
	}
	f.hedges++
	return f.book(second, &waiter{req: req}), true
}

// call runs one call as granted and settles it.
func (f *Fleet) call(ctx context.Context, g grant, req *inference.Request) answer {
	m := g.m
	callCtx, cancel := context.WithTimeoutCause(ctx, f.cfg.CallTimeout, overdue(f.cfg.CallTimeout))
	defer cancel()
	stop := context.AfterFunc(m.ctx, cancel)
	defer stop()

	sent := *req
	sent.Version = g.version
	out, err := within(callCtx, f.cfg.Watchdog, func() ([]inference.Completion, error) { return m.inst.Generate(callCtx, sent) })
	switch {
	case err == nil:
		err = f.checkAnswer(out, &sent, g.sum)
	case errors.Is(err, errStuck):
	case m.ctx.Err() != nil:
		err = context.Cause(m.ctx)
	case callCtx.Err() != nil:
		err = context.Cause(callCtx)
	}
	f.settle(ctx, g, req, out, err)
	return answer{m, g.epoch, out, err}
}

// overdue is the error of what took longer than it says.
type overdue time.Duration

func (d overdue) Error() string { return fmt.Sprintf("no answer in %v", time.Duration(d)) }

// within is what do returns. Should do go on after ctx, which ends before d, until
// d has passed, it is left to itself and the error wraps errStuck.
func within[T any](ctx context.Context, d time.Duration, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	start := time.Now()
	done := make(chan result, 1)
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
		return none, fmt.Errorf("watchdog: nothing in %v: %w", d, errStuck)
	}
}

// checkAnswer reports what is wrong with an instance's answer to req under the
// weights with checksum sum.
func (f *Fleet) checkAnswer(out []inference.Completion, req *inference.Request, sum string) error {
	if len(out) != req.N {
		return fmt.Errorf("%d responses, expected %d", len(out), req.N)
	}
	for i := range out {
		c := &out[i]
		switch {
		case c.Version != req.Version:
			return fmt.Errorf("response %d of version %d, expected %d: %w", i, c.Version, req.Version, inference.ErrStale)
		case c.Checksum != "" && c.Checksum != sum:
			return fmt.Errorf("response %d of version %d with checksum %.40s, expected %s: somebody else publishes to the instance too: %w",
				i, c.Version, c.Checksum, sum, inference.ErrStale)
		case len(c.IDs) == 0:
			return fmt.Errorf("response %d has no tokens", i)
		case len(c.IDs) > req.Sampling.MaxTokens:
			return fmt.Errorf("response %d has %d tokens, expected at most %d", i, len(c.IDs), req.Sampling.MaxTokens)
		case len(c.IDs) != len(c.Logprobs):
			return fmt.Errorf("response %d has %d tokens and %d log-probabilities", i, len(c.IDs), len(c.Logprobs))
		case req.PromptLogprobs && len(c.PromptLogprobs) != len(req.PromptIDs):
			return fmt.Errorf("response %d has %d log-probabilities of the prompt's %d tokens", i, len(c.PromptLogprobs), len(req.PromptIDs))
		}
		for j, id := range c.IDs {
			if id < 0 || f.cfg.Vocab > 0 && int(id) >= f.cfg.Vocab {
				return fmt.Errorf("response %d token %d is %d, expected 0 to %d", i, j, id, cmp.Or(f.cfg.Vocab, math.MaxInt32)-1)
			}
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
func (f *Fleet) settle(ctx context.Context, g grant, req *inference.Request, out []inference.Completion, err error) {
	m := g.m
	f.mu.Lock()
	defer f.mu.Unlock()
	f.give(m, req)
	switch {
	case err == nil:
		m.served++
		f.learn(m, out)
		if m.epoch == g.epoch {
			m.failures = 0
			if m.state == Suspect {
				f.setState(m, Healthy, nil)
			}
		}
	case errors.Is(err, errStuck):
		f.fault(m, err)
		f.setState(m, Retired, err)
	case ctx.Err() != nil || m.ctx.Err() != nil || errors.Is(err, inference.ErrInvalid):
	default:
		f.fault(m, err)
		f.blame(m, g.epoch, err)
	}
	f.dispatch()
}

// fault counts a failed call of m. f is locked.
func (f *Fleet) fault(m *member, err error) {
	m.failed++
	if errors.Is(err, inference.ErrStale) {
		f.stale++
	}
}

// blame is settle for a fault of the instance. What it did before its last
// publish says nothing about it. f is locked.
func (f *Fleet) blame(m *member, epoch int64, err error) {
	if m.epoch != epoch || !m.serves() {
		return
	}
	if errors.Is(err, inference.ErrStale) {
		m.version = 0
		f.fall(m, Stale, err)
		f.heal(m)
		return
	}
	m.failures++
	if m.failures >= f.cfg.DeadAfter {
		f.fall(m, Dead, err)
		f.mend(m)
	} else {
		f.setState(m, Suspect, err)
	}
}
