package state

import "time"

// member is an instance and its record in the fleet.
type member struct {
	handle Handle
	name   string
	probed bool // can be probed
	left   bool // has been removed

	at         int // position in the heap of ready members
	health     Health
	capacity   int       // as of joining, or of its last weights
	version    int64     // set by the last verified publish
	sum        string    // of that version
	epoch      int64     // verified publishes so far
	publishErr error     // of the last publish
	failures   int       // in a row
	restarts   int       // times that it left service by its own fault
	noted      time.Time // when a wait for it was last reported
	rests      time.Time // until when it asked for no work; zero if it did not
	awaited    int64     // last generation whose publish waited for it
	probing    int64     // generation whose probes are running, 0 if none

	requests  int   // outstanding
	responses int   // outstanding
	tokens    int64 // outstanding, upper bound

	served, failed int64
	generated      int64 // tokens
	busy           time.Duration
	busySince      time.Time
}

// before orders ready members: the least outstanding work first, ties in the order of
// joining.
func (m *member) before(o *member) bool {
	if m.tokens != o.tokens {
		return m.tokens < o.tokens
	}
	return m.handle < o.handle
}

// serves reports whether m may get a request, now or when it has room.
func (m *member) serves() bool { return m.health == Healthy || m.health == Suspect }

// mayReturn reports whether a publish can make m serve.
func (m *member) mayReturn() bool { return m.health != Draining && m.health != Retired }

// hasRoom reports whether m may take another request: it does not rest, and it has fewer growing
// responses than its capacity times 1+ahead. If ahead is not 0, m may also have a second request of
// any size, which fills slots as the responses of the first one end. A SUSPECT member gets one
// request at a time.
func (m *member) hasRoom(share, ahead float64) bool {
	switch {
	case !m.rests.IsZero():
		return false
	case m.requests == 0:
		return true
	case m.health != Healthy:
		return false
	}
	return m.grows(share) < float64(m.capacity)*(1+ahead) || (m.requests == 1 && ahead > 0)
}

// grows estimates how many of m's outstanding responses are growing: this share of them.
func (m *member) grows(share float64) float64 { return float64(share * float64(m.responses)) }

// take books a request on m.
func (m *member) take(now time.Time, r *Request) {
	if m.requests == 0 {
		m.busySince = now
	}
	m.requests++
	m.responses += r.responses
	m.tokens += r.work()
}

// give releases a request that take booked on m.
func (m *member) give(now time.Time, r *Request) {
	m.requests--
	m.responses -= r.responses
	m.tokens -= r.work()
	if m.requests == 0 {
		m.busy += now.Sub(m.busySince)
	}
}

// busyTime returns how long m has had at least one request outstanding.
func (m *member) busyTime(now time.Time) time.Duration {
	if m.requests == 0 {
		return m.busy
	}
	return m.busy + now.Sub(m.busySince)
}

// status returns a snapshot of m.
func (m *member) status(now time.Time) InstanceStatus {
	s := InstanceStatus{
		ID: m.name, State: m.health, Version: m.version, Capacity: m.capacity,
		Requests: m.requests, Responses: m.responses,
		Served: m.served, Failed: m.failed, Restarts: m.restarts, Tokens: m.generated, Busy: m.busyTime(now),
	}
	if m.publishErr != nil {
		s.PublishFail = m.publishErr.Error()
	}
	return s
}
