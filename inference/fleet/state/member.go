package state

import "time"

// member is an instance and its record in the fleet.
type member struct {
	handle Handle
	name   string
	probed bool // can be probed
	left   bool // has been removed

	readyIndex int // position in members.ready; indexed.Out if it is not there
	health     Health
	capacity   int       // when it joined, or after its last verified publish
	version    int64     // version of the weights that it holds; 0 if unknown
	checksum   string    // checksum of those weights
	epoch      int64     // number of verified publishes
	publishErr error     // why the last publish failed; nil if it succeeded or runs
	failures   int       // number of failed calls since the last success
	restarts   int       // number of times that it left service by its own fault
	noted      time.Time // when a note about it was last reported
	restUntil  time.Time // end of the rest that it asked for; zero if it does not rest
	awaited    int64     // last generation whose publish waited for it
	probing    int64     // generation whose probes are running; 0 if none

	// Outstanding work: the sums over the requests booked on it.
	requests  int
	responses int
	tokens    int64 // maximum number of tokens

	served    int64         // requests answered
	failed    int64         // requests failed
	generated int64         // tokens sampled
	busy      time.Duration // time with a request outstanding, up to when it last had none
	busySince time.Time     // when it last got its first outstanding request
}

// before orders members by outstanding work, the least first, and then by when they joined.
func (m *member) before(other *member) bool {
	if m.tokens != other.tokens {
		return m.tokens < other.tokens
	}
	return m.handle < other.handle
}

// serves reports whether m holds the current weights and may get requests when it has room.
func (m *member) serves() bool { return m.health == Healthy || m.health == Suspect }

// mayReturn reports whether a publish can make m serve.
func (m *member) mayReturn() bool { return m.health != Draining && m.health != Retired }

// hasRoom reports whether m, which serves, may take another request: it does not rest, and it has
// fewer growing responses than its capacity times 1+ahead. If ahead is not 0, m may also have a
// second request of any size, which fills slots as the responses of the first one end. A SUSPECT
// member gets one request at a time. share is growth.share.
func (m *member) hasRoom(share, ahead float64) bool {
	switch {
	case !m.restUntil.IsZero():
		return false
	case m.requests == 0:
		return true
	case m.health != Healthy:
		return false
	}
	return m.growing(share) < float64(m.capacity)*(1+ahead) || (m.requests == 1 && ahead > 0)
}

// growing estimates how many of m's outstanding responses are still growing. share is growth.share. The
// outer conversion forbids a fused multiply-add, so that all platforms decide alike.
func (m *member) growing(share float64) float64 { return float64(share * float64(m.responses)) }

// take books a request on m.
func (m *member) take(now time.Time, r *Request) {
	if m.requests == 0 {
		m.busySince = now
	}
	m.requests++
	m.responses += r.responses
	m.tokens += r.maxWork()
}

// give releases a request that take booked on m.
func (m *member) give(now time.Time, r *Request) {
	m.requests--
	m.responses -= r.responses
	m.tokens -= r.maxWork()
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

// status returns a snapshot of m, without Shown.
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
