package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report/control"
)

// add calls the server of an endpoint, takes it into the fleet and returns when
// it holds the current weights, where there are some, or has failed to. One that
// is in the fleet stays as it is.
func (in *instances) add(ctx context.Context, e configs.Endpoint) (control.Member, error) {
	in.mu.Lock()
	again := in.coming[e.URL]
	in.coming[e.URL] = true
	in.mu.Unlock()
	if again {
		return control.Member{}, fmt.Errorf("instance %s %w: it is being added", e.URL, control.ErrMember)
	}
	defer func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.coming, e.URL)
	}()
	if m, ok := in.member(e.URL); ok {
		switch m.State {
		case inference.Draining.String(): // it comes anew
			if err := in.remove(ctx, in.server(e.URL)); err != nil && !errors.Is(err, control.ErrNoMember) {
				return control.Member{}, err
			}
		case inference.Retired.String():
		default:
			return m, nil
		}
	}
	inst, kind, err := in.dial(ctx, e)
	if err != nil {
		return control.Member{}, err
	}
	e.Kind = kind
	s := &server{probed: inst, endpoint: e, track: in.spans.Lanes(inst.ID())}
	in.mu.Lock()
	if old, ok := in.servers[s.ID()]; ok { // it has given up, and this one takes its place
		in.gone += old.worked()
	}
	in.servers[s.ID()] = s
	delete(in.givenUp, s.ID())
	in.mu.Unlock()
	err = in.fleet.Add(ctx, s)
	m, ok := in.member(s.ID())
	if !ok || !in.fleet.Has(s) {
		in.mu.Lock()
		if in.servers[s.ID()] == s {
			delete(in.servers, s.ID())
		}
		in.mu.Unlock()
		return control.Member{}, errors.Join(err, s.Close())
	}
	in.news.came(m, err)
	select {
	case in.joined <- struct{}{}:
	default:
	}
	return m, nil
}

// member is what the fleet knows of an instance.
func (in *instances) member(id string) (control.Member, bool) {
	all := in.List()
	i := slices.IndexFunc(all, func(m control.Member) bool { return m.ID == id })
	if i < 0 {
		return control.Member{}, false
	}
	return all[i], true
}

// List are the instances in the order in which they joined.
func (in *instances) List() []control.Member {
	status := in.fleet.Status()
	in.mu.Lock()
	defer in.mu.Unlock()
	all := make([]control.Member, len(status.Instances))
	for i, st := range status.Instances {
		m := control.Member{ID: st.ID, Kind: configs.Embedded, State: st.State.String(), Version: st.Version, Capacity: st.Capacity,
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
func (in *instances) Add(ctx context.Context, url, kind string) (control.Member, error) {
	e, err := configs.ParseEndpoint(url, kind)
	if err != nil {
		return control.Member{}, fmt.Errorf("instance %w: %w", control.ErrMember, err)
	}
	return in.add(ctx, e)
}

// server is the one of that name that is in the fleet, or nil.
func (in *instances) server(id string) *server {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.servers[id]
}

// leaver is the server called id, which may be told to leave: an engine of this
// process may not, since none can come in its place.
func (in *instances) leaver(id string) (*server, error) {
	if s := in.server(id); s != nil {
		return s, nil
	}
	if _, ok := in.member(id); ok {
		return nil, control.ErrOwn
	}
	return nil, control.ErrNoMember
}

// Drain gives server id no more work.
func (in *instances) Drain(id string) (control.Member, error) {
	s, err := in.leaver(id)
	if err != nil {
		return control.Member{}, fmt.Errorf("drain instance %s: %w", id, err)
	}
	m, ok := in.member(id)
	if ok && m.State == inference.Draining.String() {
		return m, nil
	}
	ended, end := context.WithCancel(in.ctx)
	end()
	_ = in.fleet.Drain(ended, s) // it drains from here on
	if m, ok = in.member(id); !ok {
		return m, fmt.Errorf("drain instance %s: %w", id, control.ErrNoMember)
	}
	in.news.notes.Say("instance %s drains: it gets no more work", id)
	in.tasks.Go(func() {
		if in.fleet.Drain(in.ctx, s) == nil {
			in.news.notes.Say("instance %s has no work left", id)
		}
	})
	return m, nil
}

// Remove takes server id out of the fleet; what it samples others do.
func (in *instances) Remove(ctx context.Context, id string) error {
	s, err := in.leaver(id)
	if err == nil {
		err = in.remove(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("remove instance %s: %w", id, err)
	}
	return nil
}

// remove takes s itself out of the fleet, and not one of its name that has come
// since: then it is control.ErrNoMember, as where s is nil.
func (in *instances) remove(ctx context.Context, s *server) error {
	in.mu.Lock()
	if s == nil || s.leaves || in.servers[s.ID()] != s {
		in.mu.Unlock()
		return control.ErrNoMember
	}
	s.leaves = true
	in.mu.Unlock()
	err := in.fleet.Remove(ctx, s)
	in.mu.Lock()
	if in.servers[s.ID()] == s {
		in.gone += s.worked()
		delete(in.servers, s.ID())
	}
	in.mu.Unlock()
	in.news.left(s.ID())
	return err
}

// GivenUp reports whether instance id left since it did not answer: it may join
// again.
func (in *instances) GivenUp(id string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.givenUp[id]
}
