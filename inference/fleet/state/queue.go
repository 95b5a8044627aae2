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
	waiting  *list.List // elements are *Request, in order of arrival
	prefixes prefixes
	retries  int64 // number of tries that are retries; see Request.retried
	invalid  int64 // number of requests that failed as invalid
}

// enqueue queues r and returns how long to wait before the next Look, or returns an error.
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

// stale returns an error if r asks for a version other than the fleet's, and counts such requests.
func (q *queue) stale(r *Request) error {
	h := q.health
	if r.version == 0 || r.version == h.version {
		return nil
	}
	h.stale++
	return fmt.Errorf("request is for version %d, the fleet has %d: %w", r.version, h.version, inference.ErrStale)
}

// refuse removes from the queue the requests for which check returns an error.
func (q *queue) refuse(check func(r *Request) error) {
	var next *list.Element
	for e := q.waiting.Front(); e != nil; e = next {
		next = e.Next()
		r := e.Value.(*Request)
		if err := check(r); err != nil {
			q.drop(r)
			q.effects.Refusals = append(q.effects.Refusals, Refusal{r, err})
		}
	}
}

// patience returns how long a request that was queued at since may wait before the next Look. It
// returns an error if too few members have served for EmptyWait, or if neither a request nor a
// member has moved for Watchdog.
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
	if q.members.lastMove.After(since) {
		since = q.members.lastMove
	}
	quiet := q.cfg.Watchdog - now.Sub(since)
	if quiet <= 0 {
		return 0, fmt.Errorf("watchdog: %d requests are queued and made no progress for %v", q.waiting.Len(),
			q.cfg.Watchdog)
	}
	return min(left, quiet), nil
}

// leave removes r from the queue, or undoes its grant.
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
		r.retried = r.try > 1 && !r.wasBusy
		if r.retried {
			q.retries++
		}
		r.on = m
		r.decided = false
		q.prefixes.note(r.keys, m)
		q.effects.Grants = append(q.effects.Grants, q.book(now, m, r))
	}
}

// pick returns a member with room for r, or nil. It prefers the member that has computed a prefix of
// the prompt if that has free slots and at most r's work more than the least busy member, which it
// returns otherwise. It returns the member that last failed r only if no other serves.
func (q *queue) pick(r *Request) *member {
	avoid := r.avoid
	if q.members.serving == 1 {
		avoid = nil
	}
	best := q.members.leastBusy(avoid)
	if best == nil || r.keys == nil {
		return best
	}
	home := q.prefixes.home(r.keys)
	if home == nil || home == avoid || home.readyIndex == indexed.Out {
		return best
	}
	tooBusy := home.tokens > best.tokens+r.maxWork()
	growing := home.growing(q.members.growth.share) + float64(r.responses)
	if tooBusy || growing > float64(home.capacity) {
		return best
	}
	return home
}

// book books r on m and returns the grant.
func (q *queue) book(now time.Time, m *member, r *Request) Grant {
	q.members.take(now, m, r)
	return Grant{Request: r, Instance: m.handle, Version: m.version, Checksum: m.checksum, epoch: m.epoch, try: r.try,
		since: now, m: m}
}

// decide returns the verdict on the request of g. A request is invalid if two instances say so, or
// if the only one does: a single instance among several may have tighter limits than the others. An
// instance that refused what another one answers is at fault.
func (q *queue) decide(now time.Time, g Grant, o *Outcome) Verdict {
	r := g.Request
	r.decided = true
	invalid := errors.Is(o.Err, inference.ErrInvalid)
	refusedTwice := r.refused.m != nil && r.refused.m != g.m
	switch {
	case o.Err == nil:
		if r.refused.m != nil { // g.m has answered what refused.m refused
			q.health.recordFault(now, r.refused.m, r.refused.epoch, r.refused.err)
		}
		return Verdict{Next: Answered}
	case o.Abandoned:
		return Verdict{Next: Cancelled}
	case invalid && (refusedTwice || !q.members.hasOthers(g.m)):
		q.invalid++
		return Verdict{Next: Failed, Err: fmt.Errorf("generate on %s: %w", g.m.name, o.Err)}
	case invalid:
		r.refused = refusal{g.m, g.epoch, o.Err}
	}
	return r.next(q.cfg, g.m, o.Err)
}
