package state

import (
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// updates is the part of a Machine that brings the current weights to the instances.
type updates struct {
	health *supervisor
	queue  *queue
}

// Reject records that the answer to g did not come from the weights that it names. The
// instance gets the current weights again, unless it has taken weights since the answer.
func (u *updates) Reject(now time.Time, g Grant, cause error) {
	u.health.blame(now, g.m, g.epoch, fmt.Errorf("%w: %w", inference.ErrStale, cause))
	u.queue.dispatch(now)
}

// Begin makes version the current version of the weights. No instance holds it yet. Queued
// requests for other versions are refused with ErrStale.
func (u *updates) Begin(now time.Time, version int64) error {
	if u.health.closed {
		return fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	u.queue.prefixes = prefixes{}
	u.health.begin(now, version)
	u.queue.refuse(u.queue.stale)
	return nil
}

// Targets returns orders for all instances that may take the current weights. A publish
// waits for awaited, and once patience has passed only while too few serve. It waits for
// failed, the instances that are DEAD or did not take the last weights, only while too few
// serve.
func (u *updates) Targets() (awaited, failed []Order, patience time.Duration) {
	return u.health.targets()
}

// Published ends an order with its result. An instance serves if it reports the checksum of
// the weights. The error is the instance's fault, or nil if a newer publish has superseded
// the order.
func (u *updates) Published(now time.Time, o Order, out Publication) error {
	err := u.health.published(now, &o, &out)
	u.queue.dispatch(now)
	return err
}

// Finish ends a publish and re-enables reports that too few instances serve.
func (u *updates) Finish(now time.Time) {
	u.health.floor.publishing = false
	u.health.checkFloor(now)
}

// Mending reports whether to continue the probes that p asks for.
func (u *updates) Mending(p Probe) bool { return u.health.mending(&p) }

// Probed returns the order to publish to an instance that has answered a probe. It reports
// false if the probes belong to older weights.
func (u *updates) Probed(p Probe) (Order, bool) {
	if p.generation != u.health.generation {
		return Order{}, false
	}
	o := u.health.order(p.m)
	o.probed = true
	return o, true
}
