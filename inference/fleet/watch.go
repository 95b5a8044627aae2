package fleet

import (
	"context"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// watch follows a call until the call's context, ctx, ends. When the answer is late, it asks the
// instance for signs of work. If there are none, it ends all calls of the instance, and other
// instances get the requests. state.Machine.Watch decides when.
func (c *call) watch(ctx context.Context, g grant) {
	f, i := c.fleet, g.inst
	var begun time.Time           // start of the time without a sign of work, as far as this call has asked
	var quiet, idle time.Duration // arguments of Machine.Watch
	for {
		f.mu.Lock()
		w := f.state.Watch(time.Now(), g.Grant, quiet, idle)
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
			quietSince, idleSince := i.askForWork(ctx, w.Ask)
			if quietSince.After(begun) {
				begun = quietSince
			}
			quiet, idle = time.Since(begun), 0
			if !idleSince.IsZero() {
				idle = min(quiet, time.Since(idleSince))
			}
		}
	}
}

// askForWork asks i for a sign of work, which i must give within limit. If another call has asked
// within limit, askForWork uses that result. It returns since when i has shown no sign of work, which
// is the current time if it just has, and since when it has responded each time without showing one,
// or zero.
func (i *instance) askForWork(ctx context.Context, limit time.Duration) (quietSince, idleSince time.Time) {
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return time.Now(), time.Time{}
	}
	f := i.fleet
	f.mu.Lock()
	now := time.Now()
	recent := now.Sub(i.asked) < limit
	quietSince, idleSince = i.quietSince, i.idleSince
	f.mu.Unlock()
	switch {
	case recent && quietSince.IsZero():
		return now, time.Time{}
	case recent:
		return quietSince, idleSince
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pulse, err := pulseOf(ctx, i.Instance)
	f.mu.Lock()
	defer f.mu.Unlock()
	i.asked = now
	// For an instance that does not report its work, a response counts as a sign of work.
	works := err == nil && (pulse == "" || pulse != i.pulse)
	if i.quietSince.IsZero() || works {
		i.quietSince = now
	}
	switch {
	case err != nil || works:
		i.idleSince = time.Time{}
	case i.idleSince.IsZero():
		i.idleSince = now
	}
	if err == nil {
		i.pulse = pulse
	}
	return i.quietSince, i.idleSince
}

// pulseOf returns the pulse of an instance, or "" if it can be probed but has no pulse.
func pulseOf(ctx context.Context, inst inference.Instance) (string, error) {
	if p, ok := inst.(inference.Pulser); ok {
		return p.Pulse(ctx)
	}
	return "", inst.(inference.Prober).Probe(ctx)
}

// worked records that i has shown a sign of work.
func (i *instance) worked() {
	i.fleet.mu.Lock()
	defer i.fleet.mu.Unlock()
	i.quietSince, i.idleSince = time.Time{}, time.Time{}
}

// sleep waits for d. If ctx ends first, it returns ctx's cause.
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
