package state

import (
	"errors"
	"fmt"
	"time"
)

// begin makes version the current one. No member holds it yet.
func (h *supervisor) begin(now time.Time, version int64) {
	for _, m := range h.members.all {
		if m.health == Stale && m.publishErr == nil && m.awaited > 0 && m.awaited == h.generation {
			m.publishErr = fmt.Errorf("publish version %d to %s: not taken before the next version", h.version, m.name)
		}
		m.version = 0
	}
	h.generation++
	h.version, h.floor.publishing = version, true
	h.pace.turn()
	h.publishes.begin(now)
	for _, m := range h.members.all {
		if m.serves() {
			h.set(now, m, Stale, nil)
		}
	}
	h.checkFloor(now)
}

// published implements Machine.Published. The result of an order from before the last begin is
// ignored, because the order of the newer publish follows.
func (h *supervisor) published(now time.Time, o *Order, out *Publication) error {
	m := o.m
	if o.generation != h.generation {
		return nil
	}
	if err := o.fault(out); err != nil {
		h.notTaken(now, m, err, out.Abandoned)
		if o.probed && m.mayReturn() {
			h.fail(now, m, m.health, err) // m answers probes but refuses the weights: limit the number of tries
		}
		return err
	}
	m.publishErr = nil
	m.version, m.checksum = o.Version, out.Checksum
	m.failures = 0
	if h.floor.publishing && m.awaited == h.generation {
		h.publishes.took(now)
	}
	if m.serves() {
		h.members.capacity += out.Capacity - m.capacity
	}
	m.capacity = out.Capacity
	m.epoch++
	h.set(now, m, Healthy, nil)
	h.members.place(m)
	return nil
}

// fault returns what is wrong with a publish, or nil.
func (o *Order) fault(out *Publication) error {
	switch {
	case out.Err != nil:
		return fmt.Errorf("publish version %d to %s: %w", o.Version, o.m.name, out.Err)
	case out.Reported != out.Checksum:
		return fmt.Errorf("publish version %d to %s: instance reports checksum %s, expected %s", o.Version, o.m.name,
			out.Reported, out.Checksum)
	}
	return nil
}

// notTaken records a failed publish to m. It counts as a failure of m unless the publish was
// abandoned, the one before it failed too, or m is DEAD: publishes that fail during one outage count
// once.
func (h *supervisor) notTaken(now time.Time, m *member, err error, abandoned bool) {
	first := m.publishErr == nil && m.health != Dead
	m.publishErr = err
	switch {
	case errors.Is(err, ErrStuck):
		h.set(now, m, Retired, err)
	case m.left || h.closed || !m.mayReturn():
		return
	case first && !abandoned:
		if m.health == Stale {
			h.report(Event{ID: m.name, From: Stale, To: Stale, Err: err})
		}
		h.fail(now, m, Stale, err)
	case m.health != Dead:
		h.set(now, m, Stale, err)
	}
	h.startProbes(m)
}
