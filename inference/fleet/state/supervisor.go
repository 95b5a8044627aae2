package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// supervisor moves members between states according to the results of their calls and
// publishes. A result counts for the weights under which the call began: a grant carries the
// member's epoch and an order the fleet's generation, and a result of an older one changes no
// health.
type supervisor struct {
	cfg        *Config
	effects    *Effects
	members    *members
	closed     bool
	version    int64 // of the current weights
	generation int64 // publishes so far
	floor      floor
	pace       pace
	publishes  publishes
	noted      time.Time // when a rest of all members was last reported
	stale      int64     // requests and responses refused for their version
}

// remove removes m from the fleet.
func (h *supervisor) remove(now time.Time, m *member) {
	h.set(now, m, Draining, nil)
	m.left = true
	h.members.removed += m.busyTime(now)
	h.members.all = slices.DeleteFunc(h.members.all, func(o *member) bool { return o == m })
}

// settle records the result of a call.
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

// rest gives m no work for as long as it asks.
func (h *supervisor) rest(now time.Time, m *member, busy *inference.BusyError) {
	d := busy.Rest()
	until := now.Add(d)
	if m.left || h.closed || !until.After(m.rests) {
		return
	}
	m.rests = until
	h.effects.Rests = append(h.effects.Rests, Rest{m.handle, d})
	h.members.place(m)
	if now.Sub(m.noted) >= noteEvery {
		m.noted = now
		h.note("%s rests for %v: %w", m.name, d, busy)
	}
	h.noteRests(now)
}

// noteRests reports if all members that serve rest.
func (h *supervisor) noteRests(now time.Time) {
	var first *member
	for _, m := range h.members.all {
		switch {
		case !m.serves():
		case m.rests.IsZero():
			return
		case first == nil || m.rests.Before(first.rests):
			first = m
		}
	}
	if first != nil && h.members.serving > 1 && now.Sub(h.noted) >= noteEvery {
		h.noted = now
		h.note("all instances rest; requests wait for %s, which rests for another %v", first.name,
			first.rests.Sub(now).Round(time.Second))
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
// publish is counted and has no other effect.
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

// republish orders the current weights again for a member that does not hold them after all.
func (h *supervisor) republish(m *member) {
	if !h.closed && m.mayReturn() {
		h.effects.Orders = append(h.effects.Orders, h.order(m))
	}
}

// order asks for a publish of the current weights to m.
func (h *supervisor) order(m *member) Order {
	return Order{Instance: m.handle, Version: h.version, generation: h.generation, m: m}
}

// startProbes asks for probes of m until it answers and takes the current weights.
func (h *supervisor) startProbes(m *member) {
	if !m.probed || h.closed || !m.mayReturn() || m.probing == h.generation {
		return
	}
	m.probing = h.generation
	h.effects.Probes = append(h.effects.Probes, Probe{Instance: m.handle, generation: h.generation, m: m})
}

// set moves m to a state and reports the change. DRAINING is final, and a RETIRED member can only
// become DRAINING.
func (h *supervisor) set(now time.Time, m *member, to Health, cause error) {
	from, served := m.health, m.serves()
	if from == to || from == Draining || (from == Retired && to != Draining) {
		return
	}
	m.health = to
	h.members.recount(m, served)
	h.members.place(m)
	h.members.moved = now
	h.report(Event{ID: m.name, From: from, To: to, Err: cause})
	h.checkFloor(now)
}

// noteEvery limits the rate of notes on the same matter.
const noteEvery = time.Minute

// note reports what the fleet waits for.
func (h *supervisor) note(format string, args ...any) {
	h.report(Event{Waits: true, Err: fmt.Errorf(format, args...)})
}

func (h *supervisor) report(e Event) { h.effects.Events = append(h.effects.Events, e) }

// checkFloor records since when too few members serve, except during a publish, and reports
// the change.
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
