package membership

import (
	"context"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
)

// news are what a run says of its instances as they come, fail and go. The fleet
// tells it under its lock, so what is said is written later.
type news struct {
	notes *report.Notes
	over  []context.Context                // the run's and the roster's: after either nothing is news
	warn  func(format string, args ...any) // that writes them

	mu      sync.Mutex
	control *control.Server
	ill     map[string]bool // instances of which the last was a fault
}

// tellTo lets those at the control address hear of it too.
func (n *news) tellTo(live *control.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.control = live
}

// hear is told by the fleet of each change of a state. What every publish does
// to every instance is no news.
func (n *news) hear(e fleet.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.over, func(c context.Context) bool { return c.Err() != nil }) {
		return
	}
	event := control.InstanceEvent{ID: e.ID, From: e.From.String(), To: e.To.String()}
	switch {
	case e.ID == "":
		n.notes.Say("%s", line(e.String()))
		event = control.InstanceEvent{}
		if e.Err != nil {
			event.Cause = line(e.Err.Error())
		}
	case e.Err != nil && e.From == e.To:
		event.Cause = line(e.Err.Error())
		n.ill[e.ID] = true
		n.notes.Say("instance %s: %s still: %s", e.ID, e.To, event.Cause)
	case e.Err != nil:
		event.Cause = line(e.Err.Error())
		n.ill[e.ID] = true
		n.notes.Say("instance %s: %s, was %s: %s", e.ID, e.To, e.From, event.Cause)
	case e.To == fleet.Healthy && n.ill[e.ID]:
		delete(n.ill, e.ID)
		n.notes.Say("instance %s: %s again", e.ID, e.To)
	case e.To != fleet.Draining:
		return
	}
	n.control.Instance(event)
}

// came tells of a server that joined, with the fault that keeps it from its work
// where there is one.
func (n *news) came(m control.Instance, fault error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	event := control.InstanceEvent{ID: m.ID, To: m.State}
	switch {
	case fault != nil:
		event.Cause = line(fault.Error())
		n.ill[m.ID] = true
		n.notes.Say("instance %s (%s) joined, %s: %s", m.ID, m.Kind, m.State, event.Cause)
	case m.Version > 0:
		n.notes.Say("instance %s (%s) joined: it serves version %d", m.ID, m.Kind, m.Version)
	default:
		n.notes.Say("instance %s (%s) joined", m.ID, m.Kind)
	}
	n.control.Instance(event)
}

func (n *news) left(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ill, id)
	n.notes.Say("instance %s left", id)
	n.control.Instance(control.InstanceEvent{ID: id, From: fleet.Draining.String()})
}
