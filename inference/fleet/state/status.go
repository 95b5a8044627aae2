package state

import "time"

// InstanceStatus is a snapshot of one instance.
type InstanceStatus struct {
	ID          string
	State       Health
	Shown       string        // State's name, or UPDATING, DRAINED or RESTING
	Version     int64         // version of the weights that it holds; 0 if unknown
	Capacity    int           // number of responses that it samples at once
	Requests    int           // number of outstanding requests
	Responses   int           // number of outstanding responses
	Served      int64         // number of requests answered
	Failed      int64         // number of requests failed
	Restarts    int           // number of times that it left service by its own fault
	Tokens      int64         // number of tokens sampled
	Busy        time.Duration // time with at least one request outstanding
	PublishFail string        // why the last publish failed; empty if it succeeded or runs
}

// Status is a snapshot of a fleet.
type Status struct {
	Version   int64         // current version; 0 before the first publish
	Size      int           // number of instances that serve
	Queued    int           // number of requests that wait for an instance
	Retries   int64         // number of tries after a request's first, except those after a busy instance
	Stale     int64         // number of requests and responses refused for their version
	Invalid   int64         // number of requests refused as invalid
	Busy      time.Duration // total over all instances, including those that left
	Instances []InstanceStatus
}

// Status returns a snapshot of the fleet. A closed fleet has no instances.
func (s *Machine) Status(now time.Time) Status {
	st := Status{
		Version: s.health.version, Size: s.members.serving, Queued: s.queue.waiting.Len(),
		Retries: s.queue.retries, Stale: s.health.stale, Invalid: s.queue.invalid, Busy: s.members.busyLeft,
	}
	if s.health.closed {
		return st
	}
	for _, m := range s.members.all {
		i := m.status(now)
		i.Shown = m.shown(s.health.version)
		st.Busy += i.Busy
		st.Instances = append(st.Instances, i)
	}
	return st
}

// Names of states that depend on more than an instance's health.
const (
	Updating = "UPDATING" // STALE, but the publish of the current weights has not failed
	Drained  = "DRAINED"  // DRAINING, and without requests
	Resting  = "RESTING"  // serves, but asked for no requests for a time
)

// shown returns the name of m's state. version is the fleet's current one.
func (m *member) shown(version int64) string {
	switch {
	case m.health == Stale && m.publishErr == nil && version > 0:
		return Updating
	case m.health == Draining && m.requests == 0:
		return Drained
	case m.serves() && !m.restUntil.IsZero():
		return Resting
	}
	return m.health.String()
}
