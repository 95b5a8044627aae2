package state

import (
	"container/list"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// queue holds waiting requests and books them on members.
type queue struct {
	cfg      *Config
	effects  *Effects
	members  *members
	health   *supervisor
	waiting  *list.List // of *Request, in order of arrival
	prefixes prefixes
	retries  int64
	invalid  int64
}

// enqueue queues r and returns how long it may wait before the next Look.
func (q *queue) enqueue(now time.Time, r *Request) (time.Duration, error) {
	if err := q.stale(r); err != nil {
		return 0, err
	}
	left, err := q.patience(now, now)
	if err != nil {
		return 0, err
	}
	r.since = now
	r.place = q.waiting.PushBack(r)
	return left, nil
}

// drop removes r from the queue.
func (q *queue) drop(r *Request) {
	q.waiting.Remove(r.place)
	r.place = nil
}

// stale returns an error if r asks for a version other than the fleet's.
func (q *queue) stale(r *Request) error {
	h := q.health
	if r.version == 0 || r.version == h.version {
		return nil
	}
	h.stale++
	return fmt.Errorf("request is for version %d, the fleet has %d: %w", r.version, h.version, inference.ErrStale)
}

// refuse removes the requests for which err returns an error from the queue.
func (q *queue) refuse(err func(r *Request) error) {
	var next *list.Element
	for e := q.waiting.Front(); e != nil; e = next {
		next = e.Next()
		r := e.Value.(*Request)
		if err := err(r); err != nil {
			q.drop(r)
			q.effects.Refusals = append(q.effects.Refusals, Refusal{r, err})
		}
	}
}

// patience returns how long a request that has waited since then may wait before the next
// Look.
func (q *queue) patience(now, since time.Time) (time.Duration, error) {
	h := q.health
	left := q.cfg.EmptyWait
	if !h.floor.lowSince.IsZero() {
		left -= now.Sub(h.floor.lowSince)
	}
	if left <= 0 {
		return 0, fmt.Errorf("%w: %d for %v, expected at least %d", inference.ErrNoInstance, q.members.serving,
			q.cfg.EmptyWait, q.cfg.MinServing)
	}
	if q.members.moved.After(since) {
		since = q.members.moved
	}
	quiet := q.cfg.Watchdog - now.Sub(since)
	if quiet <= 0 {
		return 0, fmt.Errorf("watchdog: %d requests are queued and made no progress for %v", q.waiting.Len(),
			q.cfg.Watchdog)
	}
	return min(left, quiet), nil
}

// leave removes r from the queue, or releases what it was granted.
func (q *queue) leave(now time.Time, r *Request) {
	switch {
	case r.place != nil:
		q.drop(r)
	case !r.decided:
		r.decided = true
		if r.retried {
			q.retries--
		}
		q.members.give(now, r.on, r)
	}
}

// dispatch books waiting requests in order of arrival while there is room. A request that
// must avoid the only member with room lets later ones pass.
func (q *queue) dispatch(now time.Time) {
	if !q.members.enough() {
		return
	}
	var next *list.Element
	for e := q.waiting.Front(); e != nil && q.members.ready.Len() > 0; e = next {
		next = e.Next()
		r := e.Value.(*Request)
		m := q.pick(r)
		if m == nil {
			continue
		}
		q.drop(r)
		r.try++
		if r.retried = r.try > 1 && !r.rested; r.retried {
			q.retries++
		}
		r.on, r.decided = m, false
		q.prefixes.note(r.keys, m)
		q.effects.Grants = append(q.effects.Grants, q.book(now, m, r))
	}
}

// pick returns the member with room and the least work, or one with the prompt's prefix,
// free slots and hardly more work; nil if there is none. It takes the member that last
// failed the request only if no other serves.
func (q *queue) pick(r *Request) *member {
	avoid := r.avoid
	if q.members.serving == 1 {
		avoid = nil
	}
	best := q.members.least(avoid)
	if best == nil || r.keys == nil {
		return best
	}
	home := q.prefixes.home(r.keys)
	if home == nil || home == avoid || home.at == indexed.Out || home.tokens > best.tokens+r.work() {
		return best
	}
	if home.grows(q.members.growth.share)+float64(r.responses) > float64(home.capacity) {
		return best
	}
	return home
}

// book grants r to m.
func (q *queue) book(now time.Time, m *member, r *Request) Grant {
	q.members.take(now, m, r)
	return Grant{Request: r, Instance: m.handle, Version: m.version, Checksum: m.sum, epoch: m.epoch, try: r.try,
		since: now, m: m}
}

// decide returns the verdict on the request of g. A request is invalid if two instances say so, or
// the only one does: one instance alone may have other limits. An instance that refused what
// another one answers is at fault.
func (q *queue) decide(now time.Time, g Grant, o *Outcome) Verdict {
	r, invalid := g.Request, errors.Is(o.Err, inference.ErrInvalid)
	r.decided = true
	switch {
	case o.Err == nil:
		if r.refused.m != nil { // another instance has answered what it refused
			q.health.recordFault(now, r.refused.m, r.refused.epoch, r.refused.err)
		}
		return Verdict{Next: Answered}
	case o.Abandoned:
		return Verdict{Next: Cancelled}
	case invalid && (r.refused.m != nil && r.refused.m != g.m || !q.members.hasOthers(g.m)):
		q.invalid++
		return Verdict{Next: Failed, Err: fmt.Errorf("generate on %s: %w", g.m.name, o.Err)}
	case invalid:
		r.refused = refusal{g.m, g.epoch, o.Err}
	}
	return r.next(q.cfg, g.m, o.Err)
}
