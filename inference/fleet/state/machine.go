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

// Machine is the state of a fleet. It grants each request to the instance with the least
// outstanding work among those that hold the current weights, and to another one if that
// fails. While fewer than MinServing serve, requests wait. A Machine is not safe for
// concurrent use.
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

// Take returns what the caller must do since the last Take. The result is valid until the
// next event.
func (s *Machine) Take() Effects {
	e := s.effects
	s.effects.reset()
	return e
}

// Join adds an instance and returns an order to publish the current weights to it. The
// instance is STALE until it holds them. It replaces a RETIRED instance of the same name,
// which then leaves the fleet.
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

// Remove removes an instance from the fleet and reports whether it has requests left. The
// caller must end these.
func (s *Machine) Remove(now time.Time, h Handle) (busy bool) {
	m := s.members.get(h)
	if m == nil {
		return false
	}
	s.health.remove(now, m)
	s.queue.dispatch(now)
	return m.requests > 0
}

// Close refuses all requests with ErrClosed. Running calls may still settle.
func (s *Machine) Close() {
	s.health.closed = true
	s.queue.refuse(func(*Request) error { return fmt.Errorf("fleet %w", inference.ErrClosed) })
}

// Enqueue queues r and returns the time after which to Look at it again. A Grant or a
// Refusal ends the wait. A request that has ended must not be enqueued again.
func (s *Machine) Enqueue(now time.Time, r *Request) (time.Duration, error) {
	if s.health.closed {
		return 0, fmt.Errorf("fleet %w", inference.ErrClosed)
	}
	left, err := s.queue.enqueue(now, r)
	s.queue.dispatch(now)
	return left, err
}

// Look returns the time after which to look again at a waiting request. An error ends the
// request.
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

// Leave ends a request that waits or whose grant has not been sent.
func (s *Machine) Leave(now time.Time, r *Request) {
	s.queue.leave(now, r)
	s.queue.dispatch(now)
}

// Watch decides what to do about a call that has no answer yet. quiet is how long the instance has
// given no sign of work. idle is how long it has responded each time within quiet, each time
// without such a sign. Both are 0 if the caller has not asked for a sign.
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

// Rested ends a Rest, unless the instance has since asked for more time.
func (s *Machine) Rested(now time.Time, h Handle) {
	m := s.members.get(h)
	if m == nil || m.rests.IsZero() || now.Before(m.rests) {
		return
	}
	m.rests = time.Time{}
	s.members.place(m)
	s.queue.dispatch(now)
}

// Serving returns the number of serving instances and of the responses that they sample at
// once.
func (s *Machine) Serving() (instances, capacity int) {
	return s.members.serving, s.members.capacity
}

// TargetInFlight returns the number of requests, each for this many responses, that callers
// should keep in flight so that no instance idles. It counts three things: the requests
// that the serving instances get, the last of which may exceed the limit; a second request
// for each of them; and requests for about as many responses again as they sample at once,
// which wait for instances that join. It grows when answers show that the responses of a
// request differ in length.
func (s *Machine) TargetInFlight(responses int) int {
	p := s.members
	given := (1 + s.cfg.Ahead) / p.growth.share
	return int(math.Ceil((given+1)*float64(p.capacity)/float64(responses))) + 2*p.serving
}
