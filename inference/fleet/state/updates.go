package state

import (
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Reject records that the answer to g did not come from the weights that it names. The
// instance gets the current weights again, unless it has taken weights since the answer.
func (s *Machine) Reject(now time.Time, g Grant, cause error) {
	s.health.recordFault(now, g.m, g.epoch, fmt.Errorf("%w: %w", inference.ErrStale, cause))
	s.queue.dispatch(now)
}

// Begin makes version the current version of the weights. No instance holds it yet. Queued
// requests for other versions are refused with ErrStale.
func (s *Machine) Begin(now time.Time, version int64) error {
	if s.health.closed {
		return fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	s.queue.prefixes = prefixes{}
	s.health.begin(now, version)
	s.queue.refuse(s.queue.stale)
	return nil
}

// Targets returns orders to publish the current weights to all instances that may take them. failed
// are the instances that are DEAD or whose last publish failed, awaited the others. A publish waits
// for the awaited instances; once patience has passed, it waits only while too few instances serve.
// It waits for the failed ones only while too few serve.
func (s *Machine) Targets() (awaited, failed []Order, patience time.Duration) {
	h := s.health
	for _, m := range s.members.all {
		switch {
		case h.closed || !m.mayReturn():
		case m.health == Dead || m.publishErr != nil:
			failed = append(failed, h.order(m))
		default:
			m.awaited = h.generation
			awaited = append(awaited, h.order(m))
		}
	}
	return awaited, failed, h.publishes.patience(s.cfg.Watchdog)
}

// Published ends an order with its result. An instance serves if it reports the checksum of the
// weights. The error says why the instance did not take them. It is nil for an order that a newer
// publish has superseded.
func (s *Machine) Published(now time.Time, o Order, out Publication) error {
	err := s.health.published(now, &o, &out)
	s.queue.dispatch(now)
	return err
}

// Finish ends a publish and re-enables reports that too few instances serve.
func (s *Machine) Finish(now time.Time) {
	s.health.floor.publishing = false
	s.health.checkFloor(now)
}

// KeepProbing reports whether to continue the probes that p asks for. If not, it records that they
// have ended.
func (s *Machine) KeepProbing(p Probe) bool {
	m, h := p.m, s.health
	if p.generation == h.generation && !h.closed && m.mayReturn() && !m.serves() {
		return true
	}
	if m.probing == p.generation {
		m.probing = 0
	}
	return false
}

// Probed returns the order to publish to an instance that has answered a probe. It reports
// false if the probes belong to older weights.
func (s *Machine) Probed(p Probe) (Order, bool) {
	if p.generation != s.health.generation {
		return Order{}, false
	}
	o := s.health.order(p.m)
	o.probed = true
	return o, true
}
