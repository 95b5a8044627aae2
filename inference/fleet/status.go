package fleet

import (
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// State says whether an instance gets requests.
type State = state.Health

// The states of an instance.
const (
	Healthy  = state.Healthy
	Suspect  = state.Suspect
	Dead     = state.Dead
	Stale    = state.Stale
	Draining = state.Draining
	Retired  = state.Retired
)

// Names that an InstanceStatus shows for states that depend on more than its health.
const (
	Updating = state.Updating
	Drained  = state.Drained
	Resting  = state.Resting
)

// States returns the names of all states that an InstanceStatus shows.
func States() []string {
	return []string{Healthy.String(), Suspect.String(), Dead.String(), Stale.String(), Updating, Resting,
		Draining.String(), Drained, Retired.String()}
}

// Event is a change of an instance's state, or of whether enough instances serve.
type Event = state.Event

// InstanceStatus is a snapshot of one instance.
type InstanceStatus = state.InstanceStatus

// Status is a snapshot of a fleet.
type Status = state.Status

// Status returns a snapshot of the fleet.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.state.Status(time.Now())
	s.Invalid += f.invalid
	return s
}

// Capacity returns the number of responses that the serving instances sample at once.
func (f *Fleet) Capacity() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, capacity := f.state.Serving()
	return capacity
}

// Cores returns the number of cores of the serving instances outside this process. known is false if
// one of them does not report its cores.
func (f *Fleet) Cores() (cores int, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	hosts := map[string]inference.Hosted{}
	for _, i := range f.instances {
		if host, ok := i.Instance.(inference.Hosted); ok {
			hosts[i.ID()] = host
		}
	}
	known = true
	for _, st := range f.state.Status(time.Now()).Instances {
		if host, ok := hosts[st.ID]; ok && (st.State == Healthy || st.State == Suspect) {
			n := host.Cores()
			cores += n
			known = known && n > 0
		}
	}
	return cores, known
}

// TargetInFlight returns the number of requests, each for this many responses, that callers should
// keep in flight so that no instance idles.
func (f *Fleet) TargetInFlight(responses int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.TargetInFlight(responses)
}

// enough reports whether enough instances serve to accept requests. f is locked.
func (f *Fleet) enough() bool {
	serving, _ := f.state.Serving()
	return serving >= f.cfg.MinServing
}
