package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// State says whether an instance gets work.
type State int

// The states of an instance. Only a verified publish makes a DEAD or STALE one
// HEALTHY; nothing brings a DRAINING or RETIRED one back.
const (
	Healthy  State = iota // holds the current weights and answers
	Suspect               // failed its last call: gets one request at a time until one succeeds
	Dead                  // failed too often in a row
	Stale                 // not known to hold the current weights
	Draining              // finishes what it has
	Retired               // fell too often, or does not end its calls; another of its name may join
)

func (s State) String() string {
	return [...]string{"HEALTHY", "SUSPECT", "DEAD", "STALE", "DRAINING", "RETIRED"}[s]
}

// member is an instance and what the fleet knows of it. All but inst and ctx is
// guarded by the fleet's lock.
type member struct {
	inst   inference.Instance
	ctx    context.Context // ends when the instance leaves
	cancel context.CancelCauseFunc
	joined int64 // the how manieth

	at         int // in the fleet's ready ones
	state      State
	capacity   int    // when it joined, or took its last weights
	version    int64  // that the last verified publish left
	epoch      int64  // verified publishes so far
	refreshErr error  // of the last publish
	failures   int    // in a row
	restarts   int    // falls from service
	sum        string // of the weights that the last verified publish left
	mending    *generation

	requests  int   // outstanding
	responses int   // outstanding
	tokens    int64 // outstanding, at most
	idle      chan struct{}

	served, failed int64
	generated      int64 // tokens
	busy           time.Duration
	busySince      time.Time
}

// serves reports whether m may get a request now or when it has room.
func (m *member) serves() bool { return m.state == Healthy || m.state == Suspect }

// mayReturn reports whether a publish can make m serve.
func (m *member) mayReturn() bool { return m.state != Draining && m.state != Retired }

// hasRoom reports whether m may take another request: while fewer of its
// responses grow than its capacity and what it may have ahead. Where that is not
// nothing it may have a second request, however large: while one runs out, the
// next one fills the slots.
func (m *member) hasRoom(share, ahead float64) bool {
	switch {
	case m.requests == 0:
		return true
	case m.state != Healthy:
		return false
	}
	return m.grows(share) < float64(m.capacity)*(1+ahead) || (m.requests == 1 && ahead > 0)
}

// grows is how many of m's outstanding responses grow, where a share does.
func (m *member) grows(share float64) float64 { return share * float64(m.responses) }

// work is the most tokens that req may ask for.
func work(req *inference.Request) int64 { return int64(req.N) * int64(req.Sampling.MaxTokens) }

// take books a request on m and give takes it off again.
func (m *member) take(req *inference.Request) {
	if m.requests == 0 {
		m.busySince = time.Now()
	}
	m.requests++
	m.responses += req.N
	m.tokens += work(req)
}

func (m *member) give(req *inference.Request) {
	m.requests--
	m.responses -= req.N
	m.tokens -= work(req)
	if m.requests > 0 {
		return
	}
	m.busy += time.Since(m.busySince)
	if m.idle != nil {
		close(m.idle)
		m.idle = nil
	}
}

// whenIdle is closed when m has no request.
func (m *member) whenIdle() <-chan struct{} {
	if m.requests == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if m.idle == nil {
		m.idle = make(chan struct{})
	}
	return m.idle
}

// InstanceStatus is what the fleet knows of one instance.
type InstanceStatus struct {
	ID          string
	State       State
	Version     int64 // of the weights that the last verified publish left
	Capacity    int
	Requests    int           // outstanding
	Responses   int           // outstanding
	Served      int64         // requests answered
	Failed      int64         // requests failed
	Restarts    int           // falls from service for a fault of its own
	Tokens      int64         // generated
	Busy        time.Duration // with at least one request outstanding
	PublishFail string        // why the last publish failed, empty where it did not
}

// Status is a snapshot of a fleet.
type Status struct {
	Version   int64 // current; 0 before the first publish
	Size      int   // instances that serve
	Queued    int   // requests that wait for an instance
	Retries   int64 // tries after the first
	Hedges    int64 // requests given to a second instance
	Stale     int64 // requests and responses refused for their version
	Invalid   int64 // requests refused as faults of the data
	Instances []InstanceStatus
}

// Status reports the fleet as it is now.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Version: f.version(), Size: f.serving, Queued: f.queue.Len(),
		Retries: f.retries, Hedges: f.hedges, Stale: f.stale, Invalid: f.invalid}
	for _, m := range f.members {
		i := InstanceStatus{
			ID: m.inst.ID(), State: m.state, Version: m.version, Capacity: m.capacity,
			Requests: m.requests, Responses: m.responses, Served: m.served, Failed: m.failed, Restarts: m.restarts, Tokens: m.generated, Busy: m.busy,
		}
		if m.requests > 0 {
			i.Busy += time.Since(m.busySince)
		}
		if m.refreshErr != nil {
			i.PublishFail = m.refreshErr.Error()
		}
		s.Instances = append(s.Instances, i)
	}
	return s
}

// Capacity is the number of responses that the serving instances sample at
// once.
func (f *Fleet) Capacity() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.capacity
}

// setState moves m to state and lets waiting requests know. f is locked.
func (f *Fleet) setState(m *member, to State, cause error) {
	from, served := m.state, m.serves()
	if from == to || from == Draining || (from == Retired && to != Draining) {
		return
	}
	m.state = to
	switch {
	case m.serves() && !served:
		f.serving++
		f.capacity += m.capacity
	case !m.serves() && served:
		f.serving--
		f.capacity -= m.capacity
	}
	f.place(m)
	f.moved = time.Now()
	if f.cfg.Notify != nil {
		f.cfg.Notify(Event{m.inst.ID(), from, to, cause})
	}
	f.checkFloor()
	f.dispatch()
}

// checkFloor keeps the time since when too few instances serve, a publish under
// way aside, and says so. f is locked.
func (f *Fleet) checkFloor() {
	switch enough := f.serving >= f.cfg.MinServing; {
	case f.publishing:
		f.lowSince = time.Time{}
	case enough:
		f.lowSince = time.Time{}
		f.sayLow(false)
	case f.lowSince.IsZero():
		f.lowSince = time.Now()
		f.sayLow(f.current != nil)
	}
	if f.enough != nil && f.serving >= f.cfg.MinServing {
		close(f.enough)
		f.enough = nil
	}
}

func (f *Fleet) sayLow(low bool) {
	if f.low == low || f.closed {
		return
	}
	f.low = low
	if f.cfg.Notify == nil {
		return
	}
	var e Event
	if low {
		e.Err = fmt.Errorf("%w: %d, expected at least %d; waiting for up to %v", inference.ErrNoInstance, f.serving, f.cfg.MinServing, f.cfg.EmptyWait)
	}
	f.cfg.Notify(e)
}
