package state

import "time"

// member is an instance and what the fleet knows of it.
type member struct {
	handle Handle
	name   string
	probed bool // it can be probed
	left   bool // it has been removed

	at         int // in the heap of ready members
	health     Health
	capacity   int    // when it joined, or took its last weights
	version    int64  // that the last verified publish left
	sum        string // of those weights
	epoch      int64  // verified publishes so far
	publishErr error  // of the last publish
	failures   int    // in a row
	restarts   int    // falls from service
	mending    int64  // generation whose probes are under way, 0 if none are

	requests  int   // outstanding
	responses int   // outstanding
	tokens    int64 // outstanding, at most

	served, failed int64
	generated      int64 // tokens
	busy           time.Duration
	busySince      time.Time
}

// before orders the ready members: the one with the least outstanding work
// first, and of equals the one that joined first.
func (m *member) before(o *member) bool {
	if m.tokens != o.tokens {
		return m.tokens < o.tokens
	}
	return m.handle < o.handle
}

// serves reports whether m may get a request now or when it has room.
func (m *member) serves() bool { return m.health == Healthy || m.health == Suspect }

// mayReturn reports whether a publish can make m serve.
func (m *member) mayReturn() bool { return m.health != Draining && m.health != Retired }

// hasRoom reports whether m may take another request: while fewer of its
// responses grow than its capacity and the share ahead of it. With a share ahead
// it may have a second request of any size, which fills the slots while the
// first one runs out.
func (m *member) hasRoom(share, ahead float64) bool {
	switch {
	case m.requests == 0:
		return true
	case m.health != Healthy:
		return false
	}
	return m.grows(share) < float64(m.capacity)*(1+ahead) || (m.requests == 1 && ahead > 0)
}

// grows is how many of m's outstanding responses grow if a share of them does.
func (m *member) grows(share float64) float64 { return share * float64(m.responses) }

// take books a request on m.
func (m *member) take(now time.Time, r *Request) {
	if m.requests == 0 {
		m.busySince = now
	}
	m.requests++
	m.responses += r.responses
	m.tokens += r.work()
}

// give takes a request off m's books.
func (m *member) give(now time.Time, r *Request) {
	m.requests--
	m.responses -= r.responses
	m.tokens -= r.work()
	if m.requests == 0 {
		m.busy += now.Sub(m.busySince)
	}
}

// busyTime is how long m has had at least one request outstanding.
func (m *member) busyTime(now time.Time) time.Duration {
	if m.requests == 0 {
		return m.busy
	}
	return m.busy + now.Sub(m.busySince)
}

// status is what the fleet knows of m.
func (m *member) status(now time.Time) InstanceStatus {
	s := InstanceStatus{
		ID: m.name, State: m.health, Version: m.version, Capacity: m.capacity, Requests: m.requests, Responses: m.responses,
		Served: m.served, Failed: m.failed, Restarts: m.restarts, Tokens: m.generated, Busy: m.busyTime(now),
	}
	if m.publishErr != nil {
		s.PublishFail = m.publishErr.Error()
	}
	return s
}
