package state

import "time"

// InstanceStatus is a snapshot of one instance.
type InstanceStatus struct {
	ID          string
	State       Health
	Shown       string // State in words, or UPDATING, DRAINED or RESTING
	Version     int64  // of the weights set by the last verified publish
	Capacity    int
	Requests    int           // outstanding
	Responses   int           // outstanding
	Served      int64         // requests answered
	Failed      int64         // requests failed
	Restarts    int           // times that it left service by its own fault
	Tokens      int64         // generated
	Busy        time.Duration // with at least one request outstanding
	PublishFail string        // why the last publish failed; empty if it succeeded
}

// Status is a snapshot of a fleet.
type Status struct {
	Version   int64         // current; 0 before the first publish
	Size      int           // instances that serve
	Queued    int           // requests waiting for an instance
	Retries   int64         // tries after the first
	Stale     int64         // requests and responses refused for their version
	Invalid   int64         // requests refused as invalid
	Busy      time.Duration // summed over all instances, including those that left
	Instances []InstanceStatus
}

// Status returns a snapshot of the fleet. A closed fleet has no instances.
func (s *Machine) Status(now time.Time) Status {
	st := Status{
		Version: s.health.version, Size: s.members.serving, Queued: s.queue.waiting.Len(),
		Retries: s.queue.retries, Stale: s.health.stale, Invalid: s.queue.invalid, Busy: s.members.removed,
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

// Words for states that depend on more than an instance's health.
const (
	Updating = "UPDATING" // STALE only because the current weights are on their way
	Drained  = "DRAINED"  // DRAINING without requests
	Resting  = "RESTING"  // serves, but asked for no work for now
)

// shown returns m's state in words. version is the current one.
func (m *member) shown(version int64) string {
	switch {
	case m.health == Stale && m.publishErr == nil && version > 0:
		return Updating
	case m.health == Draining && m.requests == 0:
		return Drained
	case m.serves() && !m.rests.IsZero():
		return Resting
	}
	return m.health.String()
}
