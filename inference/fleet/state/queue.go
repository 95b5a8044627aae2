package state

import (
	"container/list"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/internal/indexed"
)

// queue holds the requests that wait and books them on members.
type queue struct {
	cfg      *Config
	effects  *Effects
	health   *supervisor
	waiting  *list.List // of *Request, first come first
	prefixes prefixes
	retries  int64
	hedges   int64
}

// enqueue lets r wait and returns how long it may before it must look again.
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

// drop takes r out of the queue.
func (q *queue) drop(r *Request) {
	q.waiting.Remove(r.place)
	r.place = nil
}

// stale is the error of a request for other weights than the fleet's.
func (q *queue) stale(r *Request) error {
	h := q.health
	if r.version == 0 || r.version == h.version {
		return nil
	}
	h.stale++
	return fmt.Errorf("request of version %d, the fleet's is %d: %w", r.version, h.version, inference.ErrStale)
}

// refuse takes the requests for which err is not nil out of the queue.
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

// patience is how long a request that waits since a time may wait before it must
// look again.
func (q *queue) patience(now, since time.Time) (time.Duration, error) {
	h := q.health
	left := q.cfg.EmptyWait
	if !h.floor.lowSince.IsZero() {
		left -= now.Sub(h.floor.lowSince)
	}
	if left <= 0 {
		return 0, fmt.Errorf("%w: %d for %v, expected at least %d", inference.ErrNoInstance, h.serving, q.cfg.EmptyWait, q.cfg.MinServing)
	}
	if h.moved.After(since) {
		since = h.moved
	}
	quiet := q.cfg.Watchdog - now.Sub(since)
	if quiet <= 0 {
		return 0, fmt.Errorf("watchdog: %d requests wait and nothing has moved for %v", q.waiting.Len(), q.cfg.Watchdog)
	}
	return min(left, quiet), nil
}

// leave takes r out of the queue, or gives back what it was granted.
func (q *queue) leave(now time.Time, r *Request) {
	switch {
	case r.place != nil:
		q.drop(r)
	case r.running > 0 && !r.decided:
		r.running, r.decided = 0, true
		if r.try > 1 {
			q.retries--
		}
		q.health.give(now, r.on, r)
	}
}

// dispatch books waiting requests, first come first, while there is room. A
// request that must avoid the only member with room lets those behind it pass.
func (q *queue) dispatch(now time.Time) {
	if !q.health.enough() {
		return
	}
	var next *list.Element
	for e := q.waiting.Front(); e != nil && q.health.ready.Len() > 0; e = next {
		next = e.Next()
		r := e.Value.(*Request)
		m := q.pick(r)
		if m == nil {
			continue
		}
		q.drop(r)
		if r.try++; r.try > 1 {
			q.retries++
		}
		r.on, r.running, r.decided = m, 0, false
		q.prefixes.note(r.keys, m)
		q.effects.Grants = append(q.effects.Grants, q.book(now, m, r))
	}
}

// pick is the member with room that has the least work, or one that has the
// prompt's beginning, free slots and hardly more work; nil if there is none. The
// member that failed the request last is taken only if no other serves.
func (q *queue) pick(r *Request) *member {
	avoid := r.avoid
	if q.health.serving == 1 {
		avoid = nil
	}
	best := q.health.least(avoid)
	if best == nil || r.keys == nil {
		return best
	}
	home := q.prefixes.home(r.keys)
	if home == nil || home == avoid || home.at == indexed.Out || home.tokens > best.tokens+r.work() {
		return best
	}
	if home.grows(q.health.growth.share)+float64(r.responses) > float64(home.capacity) {
		return best
	}
	return home
}

// book gives r to m.
func (q *queue) book(now time.Time, m *member, r *Request) Grant {
	r.running++
	q.health.take(now, m, r)
	return Grant{Request: r, Instance: m.handle, Version: m.version, Checksum: m.sum, epoch: m.epoch, try: r.try, m: m}
}

// hedge books the request of g on a second member, if one has room now.
func (q *queue) hedge(now time.Time, g Grant) (Grant, bool) {
	r := g.Request
	if r.try != g.try || r.decided || q.stale(r) != nil || !q.health.enough() {
		return Grant{}, false
	}
	second := q.health.least(g.m)
	if second == nil {
		return Grant{}, false
	}
	q.hedges++
	return q.book(now, second, r), true
}
