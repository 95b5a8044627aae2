package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

const (
	// embedded is the kind of an engine in the run's process.
	embedded = "embedded"
	// maxEvicted bounds the number of evicted servers remembered.
	maxEvicted = 1000
)

// server is a server in the fleet. It records its requests and publishes as spans of the
// trace.
type server struct {
	remote.Server
	endpoint remote.Endpoint
	track    trace.Track // has lanes, because requests overlap

	removing    bool      // remove has begun; guarded by servers.mu
	silentSince time.Time // when the monitor first found it silent; zero if it is not; only the monitor uses it
}

// Generate calls the server's Generate within a span.
func (s *server) Generate(ctx context.Context, req inference.Request) (out []inference.Completion, err error) {
	span := s.track.Begin(trace.NoStep, "request")
	defer func() {
		tokens := 0
		for i := range out {
			tokens += len(out[i].IDs)
		}
		span.EndWith(trace.Note{Tokens: tokens, Flows: []uint64{req.Seed}})
	}()
	return s.Server.Generate(ctx, req)
}

// Publish calls the server's Publish within a span.
func (s *server) Publish(ctx context.Context, w inference.Weights) (string, error) {
	defer s.track.Begin(int(w.Version()), "publish").End()
	return s.Server.Publish(ctx, w)
}

// Cores implements inference.Hosted.
func (s *server) Cores() int {
	if host, ok := s.Server.(inference.Hosted); ok {
		return host.Cores()
	}
	return 0
}

// Exact implements inference.Exact.
func (s *server) Exact() bool {
	exact, ok := s.Server.(inference.Exact)
	return ok && exact.Exact()
}

// servers holds the servers in the fleet. A server's ID is its URL. The methods may be called
// concurrently.
type servers struct {
	fleet     *fleet.Fleet
	dial      Dialer
	spans     *trace.Spans
	announcer *Announcer
	state     *stateFile
	joined    chan struct{} // has room for one token, which join puts there; await takes it

	mu      sync.Mutex
	claims  bool               // add claims servers
	byID    map[string]*server // servers in the fleet, or on their way into it or out of it
	pending map[string]bool    // IDs of servers that add is adding
	evicted map[string]bool    // IDs of servers that the monitor removed and that have not rejoined
}

// add connects to the server of an endpoint and adds it to the fleet. If there are weights, it
// returns when the server holds them or has failed to take them. A server that is already in the
// fleet stays unchanged, except that add replaces one that is draining, drained or retired.
func (s *servers) add(ctx context.Context, e remote.Endpoint) (control.Instance, error) {
	s.mu.Lock()
	twice := s.pending[e.URL]
	s.pending[e.URL] = true
	s.mu.Unlock()
	if twice {
		return control.Instance{}, fmt.Errorf("instance %s %w: an earlier request is already adding it",
			e.URL, control.ErrInvalid)
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pending, e.URL)
	}()
	if in, ok := s.instance(e.URL); ok {
		switch in.State {
		case fleet.Draining.String(), fleet.Drained:
			if err := s.remove(ctx, s.get(e.URL)); err != nil && !errors.Is(err, control.ErrNotFound) {
				return control.Instance{}, err
			}
		case fleet.Retired.String(): // fleet.Add replaces it
		default:
			return in, nil
		}
	}
	c, err := s.dial(ctx, e)
	if err != nil {
		return control.Instance{}, err
	}
	if s.claiming() {
		if err := c.Claim(ctx); err != nil {
			return control.Instance{}, errors.Join(err, c.Close())
		}
	}
	e.Kind = c.Kind().Name
	return s.join(ctx, &server{Server: c, endpoint: e, track: s.spans.Lanes(secret.Hide(c.ID()))})
}

// claimAll makes add claim later servers and returns those that it has added without a claim, in the
// order of their IDs.
func (s *servers) claimAll() (unclaimed []*server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = true
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		unclaimed = append(unclaimed, s.byID[id])
	}
	return unclaimed
}

// claiming reports whether claimAll has been called.
func (s *servers) claiming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims
}

// join adds a connected server to the fleet, or closes it if it is not in the fleet afterwards. A
// server that joins but does not take the weights is not an error.
func (s *servers) join(ctx context.Context, srv *server) (control.Instance, error) {
	id := srv.ID()
	s.mu.Lock()
	s.byID[id] = srv
	s.mu.Unlock()
	fault := s.fleet.Add(ctx, srv)
	in, ok := s.instance(id)
	ok = ok && s.fleet.Has(srv) // the fleet may have refused it, or it may have been removed meanwhile
	s.mu.Lock()
	switch {
	case ok:
		delete(s.evicted, id)
	case s.byID[id] == srv:
		delete(s.byID, id)
	}
	s.mu.Unlock()
	if !ok {
		return control.Instance{}, errors.Join(fault, srv.Close())
	}
	s.state.setRemoved(id, false)
	s.announcer.joined(in, fault)
	select {
	case s.joined <- struct{}{}:
	default:
	}
	return in, nil
}

// list returns the fleet's instances, including engines of the run's process, in the order
// in which they joined.
func (s *servers) list() []control.Instance {
	status := s.fleet.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]control.Instance, len(status.Instances))
	for i, st := range status.Instances {
		in := control.Instance{ID: st.ID, Kind: embedded, State: st.Shown, Version: st.Version, Capacity: st.Capacity,
			Requests: st.Requests, Responses: st.Responses, Served: st.Served, Failed: st.Failed, Tokens: st.Tokens,
			Busy: st.Busy.Seconds(), Fault: st.PublishFail}
		if srv, ok := s.byID[st.ID]; ok {
			in.Kind, in.URL = srv.endpoint.Kind, srv.endpoint.URL
		}
		all[i] = in
	}
	return all
}

// instance returns the instance called id, if the fleet has it.
func (s *servers) instance(id string) (control.Instance, bool) {
	all := s.list()
	i := slices.IndexFunc(all, func(in control.Instance) bool { return in.ID == id })
	if i < 0 {
		return control.Instance{}, false
	}
	return all[i], true
}

// get returns the server called id, or nil.
func (s *servers) get(id string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// removable returns the server called id. Engines of the run's process are not removable,
// because they could not be added again.
func (s *servers) removable(id string) (*server, error) {
	if srv := s.get(id); srv != nil {
		return srv, nil
	}
	if _, ok := s.instance(id); ok {
		return nil, control.ErrEmbedded
	}
	return nil, control.ErrNotFound
}

// remove removes srv from the fleet. It returns control.ErrNotFound if srv is nil, has left, is
// leaving or has been replaced.
func (s *servers) remove(ctx context.Context, srv *server) error {
	s.mu.Lock()
	if srv == nil || srv.removing || s.byID[srv.ID()] != srv {
		s.mu.Unlock()
		return control.ErrNotFound
	}
	srv.removing = true
	s.mu.Unlock()
	err := s.fleet.Remove(ctx, srv)
	s.mu.Lock()
	if s.byID[srv.ID()] == srv {
		delete(s.byID, srv.ID())
	}
	s.mu.Unlock()
	s.announcer.left(srv.ID())
	return err
}

// drop removes srv if it is still in the fleet, and reports an error as a warning.
func (s *servers) drop(ctx context.Context, srv *server) {
	if err := s.remove(ctx, srv); err != nil && ctx.Err() == nil && !errors.Is(err, control.ErrNotFound) {
		s.announcer.notes.Say(notice.Warning, "%v", err)
	}
}

// setEvicted records that the monitor removes server id. It forgets all earlier ones rather than
// record more than maxEvicted.
func (s *servers) setEvicted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.evicted) >= maxEvicted {
		clear(s.evicted)
	}
	s.evicted[id] = true
}

// isEvicted reports whether server id left because it did not answer and has not been added
// since.
func (s *servers) isEvicted(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.evicted[id]
}
