package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/report/control"
)

// add calls the server of an endpoint, takes it into the fleet and returns when
// it holds the current weights, where there are some, or has failed to. One that
// is in the fleet stays as it is.
func (r *Roster) add(ctx context.Context, e remote.Endpoint) (control.Instance, error) {
	r.mu.Lock()
	again := r.coming[e.URL]
	r.coming[e.URL] = true
	r.mu.Unlock()
	if again {
		return control.Instance{}, fmt.Errorf("instance %s %w: it is being added", e.URL, control.ErrInvalid)
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.coming, e.URL)
	}()
	if m, ok := r.member(e.URL); ok {
		switch m.State {
		case fleet.Draining.String(): // it comes anew
			if err := r.remove(ctx, r.server(e.URL)); err != nil && !errors.Is(err, control.ErrNotFound) {
				return control.Instance{}, err
			}
		case fleet.Retired.String():
		default:
			return m, nil
		}
	}
	inst, kind, err := r.dial(ctx, e)
	if err != nil {
		return control.Instance{}, err
	}
	e.Kind = remote.Kind(kind)
	s := &server{Probed: inst, endpoint: e, track: r.spans.Lanes(inst.ID())}
	r.mu.Lock()
	if old, ok := r.servers[s.ID()]; ok { // it has given up, and this one takes its place
		r.gone += old.worked()
	}
	r.servers[s.ID()] = s
	r.mu.Unlock()
	err = r.fleet.Add(ctx, s)
	m, ok := r.member(s.ID())
	in := ok && r.fleet.Has(s)
	r.mu.Lock()
	switch {
	case in:
		delete(r.givenUp, s.ID()) // whom the fleet does not have yet and nobody gave up was taken out
	case r.servers[s.ID()] == s:
		delete(r.servers, s.ID())
	}
	r.mu.Unlock()
	if !in {
		return control.Instance{}, errors.Join(err, s.Close())
	}
	r.kept.setOut(s.ID(), false)
	r.news.came(m, err)
	select {
	case r.joined <- struct{}{}:
	default:
	}
	return m, nil
}

// member is what the fleet knows of an instance.
func (r *Roster) member(id string) (control.Instance, bool) {
	all := r.List()
	i := slices.IndexFunc(all, func(m control.Instance) bool { return m.ID == id })
	if i < 0 {
		return control.Instance{}, false
	}
	return all[i], true
}

// List are the instances in the order in which they joined.
func (r *Roster) List() []control.Instance {
	status := r.fleet.Status()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]control.Instance, len(status.Instances))
	for i, st := range status.Instances {
		m := control.Instance{ID: st.ID, Kind: configs.Embedded, State: st.State.String(), Version: st.Version, Capacity: st.Capacity,
			Requests: st.Requests, Responses: st.Responses, Served: st.Served, Failed: st.Failed, Tokens: st.Tokens,
			Busy: st.Busy.Seconds(), Fault: st.PublishFail}
		if s, ok := r.servers[st.ID]; ok {
			m.Kind, m.URL = string(s.endpoint.Kind), s.endpoint.URL
		}
		all[i] = m
	}
	return all
}

// Add takes the server at url into the fleet.
func (r *Roster) Add(ctx context.Context, url, kind string) (control.Instance, error) {
	e, err := remote.ParseEndpoint(url, remote.Kind(kind))
	if err != nil {
		return control.Instance{}, fmt.Errorf("instance %w: %w", control.ErrInvalid, err)
	}
	return r.add(ctx, e)
}

// server is the one of that name that is in the fleet, or nil.
func (r *Roster) server(id string) *server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.servers[id]
}

// leaver is the server called id, which may be told to leave: an engine of this
// process may not, since none can come in its place.
func (r *Roster) leaver(id string) (*server, error) {
	if s := r.server(id); s != nil {
		return s, nil
	}
	if _, ok := r.member(id); ok {
		return nil, control.ErrEmbedded
	}
	return nil, control.ErrNotFound
}

// Drain gives server id no more work.
func (r *Roster) Drain(id string) (control.Instance, error) {
	s, err := r.leaver(id)
	if err != nil {
		return control.Instance{}, fmt.Errorf("drain instance %s: %w", id, err)
	}
	m, ok := r.member(id)
	if ok && m.State == fleet.Draining.String() {
		return m, nil
	}
	ended, end := context.WithCancel(r.ctx)
	end()
	_ = r.fleet.Drain(ended, s) // it drains from here on
	r.kept.setOut(id, true)
	if m, ok = r.member(id); !ok {
		return m, fmt.Errorf("drain instance %s: %w", id, control.ErrNotFound)
	}
	r.news.notes.Say("instance %s drains: it gets no more work", id)
	r.tasks.Go(func() {
		if r.fleet.Drain(r.ctx, s) == nil {
			r.news.notes.Say("instance %s has no work left", id)
		}
	})
	return m, nil
}

// Remove takes server id out of the fleet; what it samples others do.
func (r *Roster) Remove(ctx context.Context, id string) error {
	s, err := r.leaver(id)
	if err == nil {
		r.kept.setOut(id, true)
		err = r.remove(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("remove instance %s: %w", id, err)
	}
	return nil
}

// remove takes s itself out of the fleet, and not one of its name that has come
// since: then it is control.ErrNotFound, as where s is nil.
func (r *Roster) remove(ctx context.Context, s *server) error {
	r.mu.Lock()
	if s == nil || s.leaves || r.servers[s.ID()] != s {
		r.mu.Unlock()
		return control.ErrNotFound
	}
	s.leaves = true
	r.mu.Unlock()
	err := r.fleet.Remove(ctx, s)
	r.mu.Lock()
	if r.servers[s.ID()] == s {
		r.gone += s.worked()
		delete(r.servers, s.ID())
	}
	r.mu.Unlock()
	r.news.left(s.ID())
	return err
}

// Removed reports whether somebody drained or removed instance id, in this process
// of the run or in one before, and it has not come since.
func (r *Roster) Removed(id string) bool { return r.kept.isOut(id) }

// Evicted reports whether instance id left since it did not answer: it may join
// again.
func (r *Roster) Evicted(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.givenUp[id]
}
