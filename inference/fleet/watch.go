package fleet

import (
	"context"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// watch follows a call until ctx, the call's, ends. When the answer is late, it asks the
// instance for signs of work. If there are none, other instances get the instance's
// requests.
func watch(ctx context.Context, c *call, g grant) {
	f, i := c.fleet, g.inst
	begun, quiet := time.Time{}, time.Duration(0)
	for {
		f.mu.Lock()
		w := f.state.Watch(time.Now(), g.Grant, quiet)
		if w.Err != nil {
			i.silence(c.req, w.Err)
		}
		f.apply()
		f.mu.Unlock()
		if w.Err != nil || sleep(ctx, w.Wait) != nil {
			return
		}
		if w.Ask > 0 {
			if begun.IsZero() {
				begun = time.Now()
			}
			if since := i.look(ctx, f, w.Ask); since.After(begun) {
				begun = since
			}
			quiet = time.Since(begun)
		}
	}
}

// look asks i for a sign of work, unless another call has just done so, and returns since
// when it has given none.
func (i *instance) look(ctx context.Context, f *Fleet, limit time.Duration) time.Time {
	select {
	case i.turn <- struct{}{}:
		defer func() { <-i.turn }()
	case <-ctx.Done():
		return time.Now()
	}
	f.mu.Lock()
	now := time.Now()
	recent, since := now.Sub(i.asked) < limit, i.quietSince
	f.mu.Unlock()
	switch {
	case recent && since.IsZero():
		return now
	case recent:
		return since
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pulse, err := pulseOf(ctx, i.Instance)
	f.mu.Lock()
	defer f.mu.Unlock()
	i.asked = now
	// An instance that does not report its work is only expected to answer.
	if i.quietSince.IsZero() || err == nil && (pulse == "" || pulse != i.pulse) {
		i.quietSince = now
	}
	if err == nil {
		i.pulse = pulse
	}
	return i.quietSince
}

// pulseOf returns the pulse of an instance, "" if it only answers probes.
func pulseOf(ctx context.Context, inst inference.Instance) (string, error) {
	if p, ok := inst.(inference.Pulser); ok {
		return p.Pulse(ctx)
	}
	return "", inst.(inference.Prober).Probe(ctx)
}

// worked records a sign of work of i.
func (i *instance) worked(f *Fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i.quietSince = time.Time{}
}

// sleep waits for d or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
