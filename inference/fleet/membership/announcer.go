package membership

import (
	"context"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
)

// Announcer reports on the console and at the control address how a run's instances join,
// fail and leave. Its methods may be called concurrently.
type Announcer struct {
	ctx   context.Context // ends with the run; changes after that are not reported
	say   notice.Printer
	notes *report.Notes // writes lines with say later, because the fleet calls FleetEvent with its lock held

	mu      sync.Mutex
	stopped bool
	control *control.Server // gets events; nil before serve, and if there is no control address
	faulty  map[string]bool // IDs of instances that have had a fault and not become HEALTHY since
}

// NewAnnouncer returns an Announcer for a run that ends with ctx. say prints a
// message on the console.
func NewAnnouncer(ctx context.Context, say notice.Printer) *Announcer {
	return &Announcer{ctx: ctx, say: say, notes: report.NewNotes(say), faulty: map[string]bool{}}
}

// serve starts sending events to the control address.
func (a *Announcer) serve(live *control.Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.control = live
}

// stop ends the reports of FleetEvent.
func (a *Announcer) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
}

// Close writes the remaining lines.
func (a *Announcer) Close() { a.notes.Close() }

// FleetEvent reports a change of an instance's state. It is the Notify of a fleet's
// configuration. It omits changes that every publish causes in every instance.
func (a *Announcer) FleetEvent(e fleet.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped || a.ctx.Err() != nil {
		return
	}
	event := control.InstanceEvent{ID: e.ID, From: e.From.String(), To: e.To.String()}
	switch {
	case e.Waits:
		a.notes.Say(notice.Warning, "%s", oneLine(e.String()))
		return
	case e.ID == "":
		kind := notice.Progress
		event = control.InstanceEvent{}
		if e.Err != nil {
			kind = notice.Warning
			event.Cause = oneLine(e.Err.Error())
		}
		a.notes.Say(kind, "%s", oneLine(e.String()))
	case e.Err != nil:
		event.Cause = oneLine(e.Err.Error())
		a.faulty[e.ID] = true
		a.notes.Say(notice.Warning, "%s", oneLine(e.String()))
	case e.To == fleet.Healthy && a.faulty[e.ID]:
		delete(a.faulty, e.ID)
		a.notes.Say(notice.Progress, "instance %s: %s again", e.ID, e.To)
	case e.To != fleet.Draining:
		return
	}
	a.control.Instance(event)
}

// joined reports a new server. fault says why it cannot serve yet; it is nil if it can.
func (a *Announcer) joined(in control.Instance, fault error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	event := control.InstanceEvent{ID: in.ID, To: in.State}
	switch {
	case fault != nil:
		event.Cause = oneLine(fault.Error())
		a.faulty[in.ID] = true
		a.notes.Say(notice.Warning, "instance %s (%s) joined but is %s: %s", in.ID, in.Kind, in.State, event.Cause)
	case in.Version > 0:
		a.notes.Say(notice.Progress, "instance %s (%s) joined and serves version %d", in.ID, in.Kind, in.Version)
	default:
		a.notes.Say(notice.Progress, "instance %s (%s) joined", in.ID, in.Kind)
	}
	a.control.Instance(event)
}

// left reports that a server left the fleet.
func (a *Announcer) left(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.faulty, id)
	a.notes.Say(notice.Progress, "instance %s left", id)
	a.control.Instance(control.InstanceEvent{ID: id, From: fleet.Draining.String()})
}

// oneLine puts the errors joined in text on one line.
func oneLine(text string) string { return plain.Text(strings.ReplaceAll(text, "\n", "; ")) }
