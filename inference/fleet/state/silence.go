package state

import (
	"fmt"
	"time"
)

// Watch is what to do about a call that has no answer yet: wait, ask the instance for a sign of
// work, and call Machine.Watch again.
type Watch struct {
	Wait time.Duration
	Ask  time.Duration // how long to wait for the sign
	// Err, if set, ends all calls of the instance: it is silent and others get its requests.
	Err error
}

// watch implements Machine.Watch. A silent instance is DEAD and others get its requests. If too few
// others serve, an instance that does not respond at all keeps its requests, because it may be
// suspended and continue later. If it responds and is idle, it has lost them.
func (h *supervisor) watch(now time.Time, g Grant, quiet, idle time.Duration) Watch {
	m, r := g.m, g.Request
	late := h.pace.late(r.maxTokens)
	limit := max(leastQuiet, late/2)
	waited := now.Sub(g.since)
	switch {
	case r.try != g.try || r.decided || m.left || h.closed:
		return Watch{Wait: late}
	case waited+limit < late:
		return Watch{Wait: late - limit - waited, Ask: limit / 4}
	case waited < late || quiet < limit:
		return Watch{Wait: min(limit/2, max(late-waited, limit-quiet)), Ask: limit / 4}
	}
	others := h.members.serving
	if m.serves() {
		others--
	}
	needed := others < max(1, h.cfg.MinServing)
	if needed && idle < limit<<min(r.failed, 10) { // it may be slower than ever: each try is more patient
		if now.Sub(m.noted) >= noteEvery {
			m.noted = now
			h.note("waiting for %s with %s: %s, and too few others serve", m.name, requests(m.requests),
				silence(waited, quiet))
		}
		return Watch{Wait: limit, Ask: limit / 4}
	}
	err := fmt.Errorf("%s; sending %s to other instances", silence(waited, quiet), requests(m.requests))
	if needed {
		err = fmt.Errorf("%s, but it responds; sending %s again", silence(waited, quiet), requests(m.requests))
	}
	if m.serves() {
		h.fail(now, m, Dead, err)
		h.startProbes(m)
	}
	return Watch{Err: err}
}

// silence describes an instance that has not answered a call and been quiet for these times.
func silence(waited, quiet time.Duration) string {
	return fmt.Sprintf("no answer for %v and no sign of work for %v", waited.Round(100*time.Millisecond),
		quiet.Round(100*time.Millisecond))
}

func requests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}
