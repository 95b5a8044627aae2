package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report"
)

// add calls the server of an endpoint, takes it into the fleet and returns when
// it holds the current weights, where there are some, or has failed to. One that
// is in the fleet stays as it is.
func (in *instances) add(ctx context.Context, e configs.Endpoint) (report.Member, error) {
	in.mu.Lock()
	again := in.coming[e.URL]
	in.coming[e.URL] = true
	in.mu.Unlock()
	if again {
		return report.Member{}, fmt.Errorf("instance %s %w: it is being added", e.URL, report.ErrMember)
	}
	defer func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.coming, e.URL)
	}()
	if m, ok := in.member(e.URL); ok {
		switch m.State {
		case inference.Draining.String(): // it comes anew
			if err := in.Remove(ctx, e.URL); err != nil {
				return report.Member{}, err
			}
		case inference.Retired.String():
		default:
			return m, nil
		}
	}
	inst, kind, err := in.dial(ctx, e)
	if err != nil {
		return report.Member{}, err
	}
	e.Kind = kind
	s := &server{probed: inst, endpoint: e, track: in.spans.Lanes(inst.ID())}
	in.mu.Lock()
	if old, ok := in.servers[s.ID()]; ok { // it has given up, and this one takes its place
		in.gone += old.worked()
	}
	in.servers[s.ID()] = s
	in.mu.Unlock()
	var joins inference.Instance = s
	if b, ok := inst.(inference.Booter); ok {
		joins = booted{s, b}
	}
	err = in.fleet.Add(ctx, joins)
	m, ok := in.member(s.ID())
	if !ok {
		in.mu.Lock()
		delete(in.servers, s.ID())
		in.mu.Unlock()
		return report.Member{}, errors.Join(err, s.Close())
	}
	in.news.came(m, err)
	select {
	case in.joined <- struct{}{}:
	default:
	}
	return m, nil
}

// member is what the fleet knows of an instance.
func (in *instances) member(id string) (report.Member, bool) {
	all := in.List()
	i := slices.IndexFunc(all, func(m report.Member) bool { return m.ID == id })
	if i < 0 {
		return report.Member{}, false
	}
	return all[i], true
}

// List are the instances in the order in which they joined.
func (in *instances) List() []report.Member {
	status := in.fleet.Status()
	in.mu.Lock()
	defer in.mu.Unlock()
	all := make([]report.Member, len(status.Instances))
	for i, st := range status.Instances {
		m := report.Member{ID: st.ID, Kind: configs.Embedded, State: st.State.String(), Version: st.Version, Capacity: st.Capacity,
			Requests: st.Requests, Responses: st.Responses, Served: st.Served, Failed: st.Failed, Tokens: st.Tokens,
			Busy: st.Busy.Seconds(), Fault: st.PublishFail}
		if s, ok := in.servers[st.ID]; ok {
			m.Kind, m.URL = s.endpoint.Kind, s.endpoint.URL
		}
		all[i] = m
	}
	return all
}

// Add takes the server at url into the fleet.
func (in *instances) Add(ctx context.Context, url, kind string) (report.Member, error) {
	e, err := configs.ParseEndpoint(url, kind)
	if err != nil {
		return report.Member{}, fmt.Errorf("instance %w: %w", report.ErrMember, err)
	}
	return in.add(ctx, e)
}

// Drain gives instance id no more work.
func (in *instances) Drain(id string) (report.Member, error) {
	m, ok := in.member(id)
	if !ok {
		return m, fmt.Errorf("drain instance %s: %w", id, report.ErrNoMember)
	}
	if m.State == inference.Draining.String() {
		return m, nil
	}
	ended, end := context.WithCancel(in.ctx)
	end()
	_ = in.fleet.Drain(ended, id) // it drains from here on
	if m, ok = in.member(id); !ok {
		return m, fmt.Errorf("drain instance %s: %w", id, report.ErrNoMember)
	}
	in.news.note("instance %s drains: it gets no more work", id)
	in.tasks.Go(func() {
		if in.fleet.Drain(in.ctx, id) == nil {
			in.news.note("instance %s has no work left", id)
		}
	})
	return m, nil
}

// Remove takes instance id out of the fleet; what it samples others do.
func (in *instances) Remove(ctx context.Context, id string) error {
	if _, ok := in.member(id); !ok {
		return fmt.Errorf("remove instance %s: %w", id, report.ErrNoMember)
	}
	err := in.fleet.Remove(ctx, id)
	in.mu.Lock()
	if s, ok := in.servers[id]; ok {
		in.gone += s.worked()
		delete(in.servers, id)
	}
	in.mu.Unlock()
	in.news.left(id)
	return err
}

// news are what a run says of its instances as they come, fail and go.
type news struct {
	warn func(format string, args ...any)

	mu      sync.Mutex
	control *report.Control
	ill     map[string]bool // instances of which the last was a fault
}

// tellTo lets those at the control address hear of it too.
func (n *news) tellTo(control *report.Control) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.control = control
}

func (n *news) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warn(format, args...)
}

// hear is told by the fleet of each change of a state. What every publish does
// to every instance is no news.
func (n *news) hear(e inference.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ill == nil {
		n.ill = map[string]bool{}
	}
	event := report.InstanceEvent{ID: e.ID, From: e.From.String(), To: e.To.String()}
	switch {
	case e.ID == "":
		n.warn("%s", oneLine(errors.New(e.String())))
		event = report.InstanceEvent{}
		if e.Err != nil {
			event.Cause = oneLine(e.Err).Error()
		}
	case e.Err != nil:
		event.Cause = oneLine(e.Err).Error()
		n.ill[e.ID] = true
		n.warn("instance %s: %s, was %s: %s", e.ID, e.To, e.From, event.Cause)
	case e.To == inference.Healthy && n.ill[e.ID]:
		delete(n.ill, e.ID)
		n.warn("instance %s: %s again", e.ID, e.To)
	case e.To != inference.Draining:
		return
	}
	n.control.Instance(event)
}

// came tells of a server that joined, with the fault that keeps it from its work
// where there is one.
func (n *news) came(m report.Member, fault error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	event := report.InstanceEvent{ID: m.ID, To: m.State}
	switch {
	case fault != nil:
		event.Cause = oneLine(fault).Error()
		if n.ill == nil {
			n.ill = map[string]bool{}
		}
		n.ill[m.ID] = true
		n.warn("instance %s (%s) joined, %s: %s", m.ID, m.Kind, m.State, event.Cause)
	case m.Version > 0:
		n.warn("instance %s (%s) joined: it serves version %d", m.ID, m.Kind, m.Version)
	default:
		n.warn("instance %s (%s) joined", m.ID, m.Kind)
	}
	n.control.Instance(event)
}

func (n *news) left(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ill, id)
	n.warn("instance %s left", id)
	n.control.Instance(report.InstanceEvent{ID: id, From: inference.Draining.String()})
}
