package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// world drives a machine with events chosen by bytes. It keeps its own books and compares
// them with the machine's after each event.
type world struct{ books }

// books are the world's model of a machine.
type books struct {
	t    testing.TB
	s    *Machine
	cfg  Config
	now  time.Time
	data []byte
	log  []byte // events so far

	version    int64
	generation int64
	due        bool // the current publish has no orders yet
	closed     bool
	low        bool // as last reported by the machine
	instances  []*host
	parting    *host    // leaves with this event
	requests   []*asked // not ended yet
	calls      []*sent
	orders     []Order
	probes     []Probe
	rests      []Rest
	rested     int // calls of busy instances
	verdicts   map[Next]int
	silent     int // instances bypassed
}

// host models an instance.
type host struct {
	handle     Handle
	name       string
	state      Health // according to the events
	left       bool
	capacity   int
	generation int64 // held and verified, 0 for none
	epoch      int   // verified publishes

	requests, responses int
	tokens              int64
}

func (h *host) serves() bool { return h.state == Healthy || h.state == Suspect }

// The phases of a request.
const (
	fresh = iota
	queued
	running
	paused
	ended
)

// asked models a request.
type asked struct {
	*Request
	phase   int
	n       int
	tokens  int64
	version int64
	faults  int // tries that count
	entered int // when it last entered the queue
	avoids  Handle
}

// sent is an outstanding call.
type sent struct {
	Grant
	q     *asked
	h     *host
	epoch int // of h
}

// newWorld reads the configuration from the first bytes.
func newWorld(t testing.TB, data []byte) *world {
	w := &world{books{t: t, now: time.Unix(1000, 0), data: data, verdicts: map[Next]int{}}}
	w.cfg = config()
	w.cfg.MinServing, w.cfg.Attempts = 1+w.pick(3), 1+w.pick(4)
	w.cfg.DeadAfter, w.cfg.MaxRestarts, w.cfg.Ahead = 1+w.pick(3), []int{0, 2, 10, 100}[w.pick(4)], float64(w.pick(2))/2
	w.s = New(w.cfg, w.now)
	return w
}

// pick returns the next byte as a number below n, or 0 at the end of the data.
func (w *books) pick(n int) int {
	if len(w.data) == 0 || n == 0 {
		return 0
	}
	b := w.data[0]
	w.data = w.data[1:]
	return int(b) % n
}

// must fails the test unless ok.
func (w *books) must(ok bool, format string, args ...any) {
	if !ok {
		w.t.Helper()
		w.t.Fatalf("%s\nafter%s", fmt.Sprintf(format, args...), w.log)
	}
}

func (w *books) logf(format string, args ...any) {
	w.log = fmt.Appendf(append(w.log, "\n  "...), format, args...)
}

// sum returns the checksum of a generation's weights.
func sum(generation int64) string { return fmt.Sprint("sum-", generation) }

// host returns the instance with handle h.
func (w *books) host(h Handle) *host {
	at := slices.IndexFunc(w.instances, func(i *host) bool { return i.handle == h })
	w.must(at >= 0, "instance %d is unknown", h)
	return w.instances[at]
}

// serving returns the number of serving instances and their total capacity.
func (w *books) serving() (n, capacity int) {
	for _, h := range w.instances {
		if h.serves() {
			n, capacity = n+1, capacity+h.capacity
		}
	}
	return n, capacity
}

// end ends a request and checks that it ends once.
func (w *books) end(q *asked, how string) {
	w.must(q.phase != ended, "request %p ends twice, now %s", q.Request, how)
	w.logf("request %p ends: %s", q.Request, how)
	q.phase = ended
	w.requests = slices.DeleteFunc(w.requests, func(o *asked) bool { return o == q })
}

// check takes the effects of an event and compares all books.
func (w *books) check() {
	w.t.Helper()
	e := w.s.Take()
	for _, event := range e.Events {
		w.event(event)
	}
	for _, r := range e.Refusals {
		q := w.asked(r.Request)
		w.must(q.phase == queued, "request %p is refused in phase %d", r.Request, q.phase)
		w.must(errors.Is(r.Err, inference.ErrStale) || errors.Is(r.Err, inference.ErrClosed), "refused for %v", r.Err)
		w.end(q, r.Err.Error())
	}
	for _, g := range e.Grants {
		q := w.asked(g.Request)
		w.must(q.phase == queued, "request %p is granted in phase %d", g.Request, q.phase)
		q.phase = running
		w.grant(q, g)
	}
	w.parting = nil
	w.checkQueue(&e)
	w.orders, w.probes, w.rests = append(w.orders, e.Orders...), append(w.probes, e.Probes...),
		append(w.rests, e.Rests...)
	for _, h := range e.Idle {
		i := w.host(h)
		w.must(i.state == Draining && i.requests == 0, "instance %s is idle: %+v", i.name, i)
	}
	w.checkBooks()
}

// event tracks the states of the instances.
func (w *books) event(e Event) {
	w.logf("%s", e)
	if e.Waits {
		return
	}
	if e.ID == "" {
		w.must(w.low == (e.Err == nil), "the fleet reports %v, and was low: %v", e.Err, w.low)
		w.low = e.Err != nil
		return
	}
	at := slices.IndexFunc(w.instances, func(h *host) bool {
		return h.name == e.ID && h.state == e.From && (!h.left || h == w.parting)
	})
	w.must(at >= 0, "no instance %s was %s", e.ID, e.From)
	w.instances[at].state = e.To
}

// grant books a call.
func (w *books) grant(q *asked, g Grant) {
	h := w.host(g.Instance)
	w.logf("request %p is granted %s", q.Request, h.name)
	w.must(h.generation == w.generation && g.Version == w.version && g.Checksum == sum(w.generation),
		"%s holds generation %d of %d and is granted a request of version %d, %s", h.name, h.generation, w.generation,
		g.Version, g.Checksum)
	w.must(q.version == 0 || q.version == w.version, "request of version %d is granted under %d", q.version, w.version)
	w.must(h.serves() && !h.left, "%s, %s, is granted a request", h.name, h.state)
	w.must(h.state != Suspect || h.requests == 0, "%s is suspect and gets a second request", h.name)
	n, _ := w.serving()
	w.must(n >= w.cfg.MinServing, "granted while %d serve, expected at least %d", n, w.cfg.MinServing)
	w.must(q.avoids != h.handle || n == 1, "granted %s, which failed the request last", h.name)
	w.must(!w.closed, "granted by a closed fleet")
	h.requests, h.responses, h.tokens = h.requests+1, h.responses+q.n, h.tokens+q.tokens
	w.calls = append(w.calls, &sent{Grant: g, q: q, h: h, epoch: h.epoch})
}

// release removes a call from the books.
func (w *books) release(c *sent) {
	w.calls = slices.DeleteFunc(w.calls, func(o *sent) bool { return o == c })
	h := c.h
	h.requests, h.responses, h.tokens = h.requests-1, h.responses-c.q.n, h.tokens-c.q.tokens
}

func (w *books) asked(r *Request) *asked {
	at := slices.IndexFunc(w.requests, func(q *asked) bool { return q.Request == r })
	w.must(at >= 0, "request %p is unknown", r)
	return w.requests[at]
}

// checkQueue checks that no request overtakes another and none waits while an instance has
// room for it.
func (w *books) checkQueue(e *Effects) {
	n, _ := w.serving()
	last := -1
	for _, g := range e.Grants {
		last = max(last, w.asked(g.Request).entered)
	}
	for _, q := range w.requests {
		if q.phase != queued {
			continue
		}
		w.must(q.entered >= last || q.avoids != 0, "request %p is overtaken", q.Request)
		if n < w.cfg.MinServing {
			continue
		}
		for _, m := range w.s.members.all {
			if room := m.serves() && m.hasRoom(w.s.members.growth.share, w.cfg.Ahead); room &&
				(m.handle != q.avoids || n == 1) {
				w.must(false, "request %p waits while %s has room", q.Request, m.name)
			}
		}
	}
}

// checkBooks compares the machine's counters with the world's.
func (w *books) checkBooks() {
	s := w.s.Status(w.now)
	n, capacity := w.serving()
	serving, most := w.s.Serving()
	w.must(s.Size == n && serving == n && most == capacity, "%d instances of capacity %d serve, expected %d of %d",
		serving, most, n, capacity)
	waiting := 0
	for _, q := range w.requests {
		if q.phase == queued {
			waiting++
		}
	}
	w.must(s.Queued == waiting, "%d requests wait, expected %d", s.Queued, waiting)
	ready := 0
	for _, h := range w.instances {
		m := w.s.members.get(h.handle)
		if h.left {
			w.must(m == nil, "%s is still in the machine", h.name)
			continue
		}
		if m == nil || m.health != h.state || m.requests != h.requests || m.responses != h.responses ||
			m.tokens != h.tokens {
			w.must(false, "the machine has %+v, expected %+v", m, h)
		}
		if room := h.serves() && m.hasRoom(w.s.members.growth.share, w.cfg.Ahead); room != (m.readyIndex >= 0) {
			w.must(false, "%s, %s, has place %d", h.name, h.state, m.readyIndex)
		}
		if m.readyIndex >= 0 {
			ready++
		}
	}
	w.must(w.s.members.ready.Len() == ready, "%d are ready, expected %d", w.s.members.ready.Len(), ready)
}
