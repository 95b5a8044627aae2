package inference

import (
	"context"
	"time"
)

// State says whether an instance gets work.
type State int

// The states of an instance. Only a verified publish makes a DEAD or STALE one
// HEALTHY; nothing brings a DRAINING one back.
const (
	Healthy  State = iota // holds the current weights and answers
	Suspect               // failed its last call: gets one request at a time until one succeeds
	Dead                  // failed too often in a row
	Stale                 // not known to hold the current weights
	Draining              // finishes what it has
)

func (s State) String() string {
	return [...]string{"HEALTHY", "SUSPECT", "DEAD", "STALE", "DRAINING"}[s]
}

// member is an instance and what the fleet knows of it. All but inst and ctx is
// guarded by the fleet's lock.
type member struct {
	inst   Instance
	ctx    context.Context // ends when the instance leaves
	cancel context.CancelCauseFunc

	state      State
	version    int64 // that the last verified publish left
	epoch      int64 // verified publishes so far
	refreshErr error // of the last publish
	failures   int   // in a row

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

// hasRoom reports whether m may take another request: while it has fewer
// responses outstanding than its capacity and what it may have ahead.
func (m *member) hasRoom(ahead float64) bool {
	if m.requests == 0 {
		return true
	}
	return m.state == Healthy && float64(m.responses) < float64(m.inst.Capacity())*(1+ahead)
}

// take books a request on m and give takes it off again.
func (m *member) take(req *Request) {
	if m.requests == 0 {
		m.busySince = time.Now()
	}
	m.requests++
	m.responses += req.N
	m.tokens += int64(req.N) * int64(req.Sampling.MaxTokens)
}

func (m *member) give(req *Request) {
	m.requests--
	m.responses -= req.N
	m.tokens -= int64(req.N) * int64(req.Sampling.MaxTokens)
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
	Tokens      int64         // generated
	Busy        time.Duration // with at least one request outstanding
	PublishFail string        // why the last publish failed, empty where it did not
}

// FleetStatus is a snapshot of a fleet.
type FleetStatus struct {
	Version   int64 // current; 0 before the first publish
	Size      int   // instances that serve
	Queued    int   // requests that wait for an instance
	Retries   int64 // tries after the first
	Stale     int64 // requests and responses refused for their version
	Invalid   int64 // requests refused as faults of the data
	Instances []InstanceStatus
}

// Status reports the fleet as it is now.
func (f *Fleet) Status() FleetStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := FleetStatus{Version: f.version(), Size: f.serving(), Queued: len(f.queue), Retries: f.retries, Stale: f.stale, Invalid: f.invalid}
	for _, m := range f.members {
		i := InstanceStatus{
			ID: m.inst.ID(), State: m.state, Version: m.version, Capacity: m.inst.Capacity(),
			Requests: m.requests, Responses: m.responses, Served: m.served, Failed: m.failed, Tokens: m.generated, Busy: m.busy,
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
	n := 0
	for _, m := range f.members {
		if m.serves() {
			n += m.inst.Capacity()
		}
	}
	return n
}

// serving is the number of instances that serve. f is locked.
func (f *Fleet) serving() int {
	n := 0
	for _, m := range f.members {
		if m.serves() {
			n++
		}
	}
	return n
}

// setState moves m to state and lets waiting requests know. f is locked.
func (f *Fleet) setState(m *member, to State, cause error) {
	from := m.state
	if from == to || from == Draining {
		return
	}
	m.state = to
	if f.cfg.Notify != nil {
		f.cfg.Notify(Event{m.inst.ID(), from, to, cause})
	}
	f.updateEmpty()
	f.dispatch()
}

// updateEmpty keeps the time since when no instance serves. f is locked.
func (f *Fleet) updateEmpty() {
	switch serving := f.serving(); {
	case serving > 0:
		f.emptySince = time.Time{}
	case f.emptySince.IsZero():
		f.emptySince = time.Now()
	}
}
