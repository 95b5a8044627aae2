// Package state decides which inference instance gets which request: a state machine
// without goroutines, locks, clocks or I/O.
//
// A Machine identifies instances by handles. The caller reports each event with a method
// call, one at a time, and then carries out what Take returns. Methods take the current
// time if it matters.
package state

import (
	"container/list"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Machine is the state of a fleet. It grants each request to an instance that holds the current
// weights, usually the one with the least outstanding work, and to another one if that fails. While
// fewer than MinServing instances serve, requests wait. A Machine is not safe for concurrent use.
//
// Members records the instances and the work booked on them, health decides which of them serve, and
// queue assigns requests to them. Each appends to effects what the caller must do.
type Machine struct {
	cfg     Config
	effects Effects
	members *members
	health  *supervisor
	queue   *queue
}

// New returns a machine without instances or weights. cfg must be valid.
func New(cfg Config, now time.Time) *Machine {
	s := &Machine{cfg: cfg}
	s.members = newMembers(&s.cfg, &s.effects)
	s.health = &supervisor{cfg: &s.cfg, effects: &s.effects, members: s.members, floor: floor{lowSince: now}}
	s.queue = &queue{cfg: &s.cfg, effects: &s.effects, members: s.members, health: s.health, waiting: list.New()}
	return s
}

// Take returns what the caller must do because of the events since the last Take. The result is
// valid until the next event.
func (s *Machine) Take() Effects {
	e := s.effects
	s.effects.reset()
	return e
}

// Join adds an instance and returns an order to publish the current weights to it. The instance is
// STALE until it holds them. probed says whether it can be probed. It replaces a RETIRED instance of
// the same name, which then leaves the fleet and whose handle is replaced; otherwise replaced is 0.
func (s *Machine) Join(now time.Time, name string, capacity int, probed bool) (o Order, replaced Handle, err error) {
	old := s.members.named(name)
	switch {
	case s.health.closed:
		return Order{}, 0, fmt.Errorf("fleet %w", inference.ErrClosed)
	case old != nil && old.health != Retired:
		return Order{}, 0, errors.New("an instance of that name is already in the fleet")
	case old != nil:
		replaced = old.handle
		s.health.remove(now, old)
	}
	return s.health.order(s.members.join(name, capacity, probed)), replaced, nil
}

// Drain gives an instance no more work and reports whether it has requests left. The
// instance stays in the fleet, DRAINING.
func (s *Machine) Drain(now time.Time, h Handle) (busy bool) {
	m := s.members.get(h)
	if m == nil {
		return false
	}
	s.health.set(now, m, Draining, nil)
	s.queue.dispatch(now)
	return m.requests > 0
}

// Remove removes an instance from the fleet and reports whether it has requests left, which the
// caller must end.
func (s *Machine) Remove(now time.Time, h Handle) (busy bool) {
	m := s.members.get(h)
	if m == nil {
		return false
	}
	s.health.remove(now, m)
	s.queue.dispatch(now)
	return m.requests > 0
}

// Close refuses queued and later requests with ErrClosed. Running calls may still settle.
func (s *Machine) Close() {
	s.health.closed = true
	s.queue.refuse(func(*Request) error { return fmt.Errorf("fleet %w", inference.ErrClosed) })
}

// Enqueue queues r and returns how long to wait before the next Look at it. A Grant or a Refusal
// ends the wait. A request that has ended must not be enqueued again.
func (s *Machine) Enqueue(now time.Time, r *Request) (time.Duration, error) {
	if s.health.closed {
		return 0, fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	left, err := s.queue.enqueue(now, r)
	s.queue.dispatch(now)
	return left, err
}

// Look checks whether a queued request may still wait, and returns how long to wait before the next
// Look. If it may not, Look removes the request from the queue and returns an error.
func (s *Machine) Look(now time.Time, r *Request) (time.Duration, error) {
	if r.place == nil {
		return s.cfg.Watchdog, nil
	}
	left, err := s.queue.patience(now, r.since)
	if err != nil {
		s.queue.leave(now, r)
	}
	return left, err
}

// Leave ends a request that is queued, or whose grant the caller does not send.
func (s *Machine) Leave(now time.Time, r *Request) {
	s.queue.leave(now, r)
	s.queue.dispatch(now)
}

// Watch decides what to do about a call that has no answer yet. quiet is how long the instance has
// shown no sign of work. idle is for how long of that time it has responded whenever asked, without
// showing a sign of work. Both are 0 if the caller has not asked.
func (s *Machine) Watch(now time.Time, g Grant, quiet, idle time.Duration) Watch {
	w := s.health.watch(now, g, quiet, idle)
	s.queue.dispatch(now)
	return w
}

// Settle ends a granted call, updates the instance's health and decides how the request
// continues.
func (s *Machine) Settle(now time.Time, g Grant, o Outcome) Verdict {
	s.members.give(now, g.m, g.Request)
	s.health.settle(now, g, &o)
	v := s.queue.decide(now, g, &o)
	s.queue.dispatch(now)
	return v
}

// Rested ends a Rest, unless the instance has since asked for a longer one.
func (s *Machine) Rested(now time.Time, h Handle) {
	m := s.members.get(h)
	if m == nil || m.restUntil.IsZero() || now.Before(m.restUntil) {
		return
	}
	m.restUntil = time.Time{}
	s.members.place(m)
	s.queue.dispatch(now)
}

// Serving returns the number of serving instances and the number of responses that they sample at
// once together.
func (s *Machine) Serving() (instances, capacity int) {
	return s.members.serving, s.members.capacity
}

// TargetInFlight returns the number of requests, each for this many responses, that callers
// should keep in flight so that no instance idles. For each serving instance it counts the
// requests that fit its limit and one that may exceed it, the second request that hasRoom
// allows, and requests for as many responses as it samples at once, which wait for instances
// that join. It grows when answers show that the responses of a request differ in length.
func (s *Machine) TargetInFlight(responses int) int {
	p := s.members
	given := (1 + s.cfg.Ahead) / p.growth.share // outstanding responses per unit of capacity; see hasRoom
	requests := (given + 1) * float64(p.capacity) / float64(responses)
	return int(math.Ceil(requests)) + 2*p.serving
}
