package state

import (
	"fmt"
	"time"
)

// Watch says what to do about a call that has no answer yet: wait, ask the instance for a sign of
// work, and call Machine.Watch again.
type Watch struct {
	Wait time.Duration
	Ask  time.Duration // how long the instance may take to respond; 0 means not to ask
	// Err, if set, means that the instance is silent. The caller ends all of its calls with Err and
	// watches no longer, and other instances get its requests.
	Err error
}

// watch implements Machine.Watch. A call is late after pace.late. The instance of a late call is
// silent if it has shown no sign of work for half of that time; it then becomes DEAD and others get
// its requests.
//
// If too few others serve, an instance that does not respond keeps its requests, because it may be
// suspended and continue later. If it responds but stays idle for long enough, it has lost them, and
// they are sent again.
func (h *supervisor) watch(now time.Time, g Grant, quiet, idle time.Duration) Watch {
	m, r := g.m, g.Request
	late := h.pace.late(r.maxTokens, h.cfg.Patience)
	limit := max(minQuiet, late/2)
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
	const maxDoublings = 10 // keeps the limit in the range of a duration
	// The instance may have become slower than ever before, so each failed try doubles the limit.
	if needed && idle < limit<<min(r.failed, maxDoublings) {
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

// silence describes an instance that has not answered a call for the time waited and has shown no sign of
// work for the time quiet.
func silence(waited, quiet time.Duration) string {
	return fmt.Sprintf("no answer for %v and no sign of work for %v", waited.Round(100*time.Millisecond),
		quiet.Round(100*time.Millisecond))
}

// requests returns "1 request" or "n requests".
func requests(n int) string {
	if n == 1 {
		return "1 request"
	}
	return fmt.Sprintf("%d requests", n)
}
