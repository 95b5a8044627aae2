package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// supervisor changes the health of members according to the results of their calls and publishes.
// Results may arrive late. A grant therefore carries the member's epoch and an order the fleet's
// generation. A call that failed in an older epoch, or a publish of an older generation, changes no
// health.
type supervisor struct {
	cfg        *Config
	effects    *Effects
	members    *members
	closed     bool
	version    int64 // version of the current weights; 0 before the first publish
	generation int64 // number of publishes begun
	floor      floor
	pace       pace
	publishes  publishes
	noted      time.Time // when noteRests last reported that all members rest
	stale      int64     // number of requests and responses refused for their version
}

// remove removes m from the fleet.
func (h *supervisor) remove(now time.Time, m *member) {
	h.set(now, m, Draining, nil)
	m.left = true
	h.members.busyLeft += m.busyTime(now)
	h.members.all = slices.DeleteFunc(h.members.all, func(other *member) bool { return other == m })
}

// settle records the result of a call, and changes the member's health.
func (h *supervisor) settle(now time.Time, g Grant, o *Outcome) {
	m, epoch := g.m, g.epoch
	var busy *inference.BusyError
	switch {
	case o.Err == nil:
		m.served++
		h.members.learn(m, o.Completions)
		h.pace.learn(now.Sub(g.since), g.Request.maxTokens)
		if m.epoch == epoch {
			m.failures = 0
			if m.health == Suspect {
				h.set(now, m, Healthy, nil)
			}
		}
	case errors.Is(o.Err, ErrStuck):
		h.count(m, o.Err)
		h.set(now, m, Retired, o.Err)
	case errors.As(o.Err, &busy):
		h.rest(now, m, busy)
	case o.Abandoned || m.left || h.closed || errors.Is(o.Err, inference.ErrInvalid):
	default:
		h.recordFault(now, m, epoch, o.Err)
	}
}

// rest keeps requests from m for as long as it asks.
func (h *supervisor) rest(now time.Time, m *member, busy *inference.BusyError) {
	d := busy.RetryDelay()
	until := now.Add(d)
	if m.left || h.closed || !until.After(m.restUntil) {
		return
	}
	m.restUntil = until
	h.effects.Rests = append(h.effects.Rests, Rest{m.handle, d})
	h.members.place(m)
	if now.Sub(m.noted) >= noteEvery {
		m.noted = now
		h.note("%s rests for %v: %w", m.name, d, busy)
	}
	h.noteRests(now)
}

// noteRests reports that all members that serve rest, if they do and there are several: a rest of a
// single one has just been reported.
func (h *supervisor) noteRests(now time.Time) {
	var first *member
	for _, m := range h.members.all {
		switch {
		case !m.serves():
		case m.restUntil.IsZero():
			return
		case first == nil || m.restUntil.Before(first.restUntil):
			first = m
		}
	}
	if first != nil && h.members.serving > 1 && now.Sub(h.noted) >= noteEvery {
		h.noted = now
		h.note("all instances rest; requests wait for %s, which rests for another %v", first.name,
			first.restUntil.Sub(now).Round(time.Second))
	}
}

// count counts a failed call of m.
func (h *supervisor) count(m *member, err error) {
	m.failed++
	if errors.Is(err, inference.ErrStale) {
		h.stale++
	}
}

// recordFault counts a fault of m, which may take m out of service. A fault from before m's last
// verified publish is only counted.
func (h *supervisor) recordFault(now time.Time, m *member, epoch int64, err error) {
	h.count(m, err)
	if m.epoch != epoch || !m.serves() {
		return
	}
	if errors.Is(err, inference.ErrStale) {
		m.version = 0
		h.fail(now, m, Stale, err)
		h.republish(m)
		return
	}
	m.failures++
	if m.failures >= h.cfg.DeadAfter {
		h.fail(now, m, Dead, err)
		h.startProbes(m)
	} else {
		h.set(now, m, Suspect, err)
	}
}

// fail takes m out of service by its own fault. m moves to the state to, or to RETIRED if it has
// failed more than MaxRestarts times.
func (h *supervisor) fail(now time.Time, m *member, to Health, cause error) {
	m.restarts++
	if m.restarts > h.cfg.MaxRestarts {
		to = Retired
		cause = fmt.Errorf("failed %d times, expected at most %d: %w", m.restarts, h.cfg.MaxRestarts, cause)
	}
	h.set(now, m, to, cause)
}

// republish orders a publish of the current weights to a member that served but does not hold them.
func (h *supervisor) republish(m *member) {
	if !h.closed && m.mayReturn() {
		h.effects.Orders = append(h.effects.Orders, h.order(m))
	}
}

// order returns an order to publish the current weights to m.
func (h *supervisor) order(m *member) Order {
	return Order{Instance: m.handle, Version: h.version, generation: h.generation, m: m}
}

// startProbes asks the caller to probe m until it responds and takes the current weights. It does
// nothing if m cannot be probed, cannot return to service, or is probed for them already.
func (h *supervisor) startProbes(m *member) {
	if !m.probed || h.closed || !m.mayReturn() || m.probing == h.generation {
		return
	}
	m.probing = h.generation
	h.effects.Probes = append(h.effects.Probes, Probe{Instance: m.handle, generation: h.generation, m: m})
}

// set changes m's health and reports the change. It does nothing if m is in that state already, if m
// is DRAINING, which is final, or if m is RETIRED and to is not DRAINING.
func (h *supervisor) set(now time.Time, m *member, to Health, cause error) {
	from, served := m.health, m.serves()
	if from == to || from == Draining || (from == Retired && to != Draining) {
		return
	}
	m.health = to
	h.members.recount(m, served)
	h.members.place(m)
	h.members.lastMove = now
	h.report(Event{ID: m.name, From: from, To: to, Err: cause})
	h.checkFloor(now)
}

// noteEvery limits the rate of notes on the same matter.
const noteEvery = time.Minute

// note reports what the fleet waits for.
func (h *supervisor) note(format string, args ...any) {
	h.report(Event{Waits: true, Err: fmt.Errorf(format, args...)})
}

// report hands an event to the caller.
func (h *supervisor) report(e Event) { h.effects.Events = append(h.effects.Events, e) }

// checkFloor updates the floor and reports if too few members serve, or if enough serve again.
func (h *supervisor) checkFloor(now time.Time) {
	if h.floor.check(now, h.members.enough(), h.version != 0) && !h.closed {
		h.floor.low = !h.floor.low
		var e Event
		if h.floor.low {
			e.Err = fmt.Errorf("%w: %d, expected at least %d; waiting up to %v", inference.ErrNoInstance,
				h.members.serving, h.cfg.MinServing, h.cfg.EmptyWait)
		}
		h.report(e)
	}
}
