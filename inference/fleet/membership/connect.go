package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/discover"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

const (
	// callAgain is how long a server that cannot be reached has before it is
	// called again.
	callAgain = 5 * time.Second
	// watchEvery is how often the list of servers is read.
	watchEvery = 5 * time.Second
	// leaveIn is how long a server that is on the list no more has for what it
	// samples.
	leaveIn = 5 * time.Minute
	// giveUpAfter is how long a server that joined by itself may fail to answer
	// before it leaves, and tendEvery how often that is looked at.
	giveUpAfter = 10 * time.Minute
	tendEvery   = time.Minute
	// mostGivenUp bounds what is known of servers that have left so.
	mostGivenUp = 1000
)

// Probed is an instance that says whether it is well.
type Probed interface {
	inference.Instance
	Probe(ctx context.Context) error
}

// Dialer calls the server of an endpoint and says of what kind it is.
type Dialer func(ctx context.Context, e remote.Endpoint) (inst Probed, kind string, err error)

// server is an inference server with its rows in the trace.
type server struct {
	Probed
	endpoint remote.Endpoint
	track    trace.Track // of lanes: a span for each request and each publish

	mu       sync.Mutex
	requests int
	since    time.Time // that there are any
	busy     time.Duration

	leaves bool      // it is being removed; guarded by the instances' lock
	silent time.Time // that it has not answered since, zero while it does; of tend
}

// Generate is the server's, as a span, and a part of the time that it had work.
func (s *server) Generate(ctx context.Context, req inference.Request) (out []inference.Completion, err error) {
	span := s.track.Begin(trace.NoStep, "request")
	s.mu.Lock()
	if s.requests == 0 {
		s.since = time.Now()
	}
	s.requests++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.requests--; s.requests == 0 {
			s.busy += time.Since(s.since)
		}
	}()
	defer func() {
		tokens := 0
		for i := range out {
			tokens += len(out[i].IDs)
		}
		span.EndWith(trace.Note{Tokens: tokens, Flows: []uint64{req.Seed}})
	}()
	return s.Probed.Generate(ctx, req)
}

// Publish is the server's, as a span.
func (s *server) Publish(ctx context.Context, w inference.Weights) (string, error) {
	defer s.track.Begin(int(w.Version()), "publish").End()
	return s.Probed.Publish(ctx, w)
}

// worked is the time that the server had work.
func (s *server) worked() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests > 0 {
		return s.busy + time.Since(s.since)
	}
	return s.busy
}

// callServers calls the servers of the configuration. Those that do not answer
// are called again after begin, where the run can start without them: there are
// enough others, or more may join.
func (r *Roster) callServers(ctx context.Context, more bool) error {
	faults := make([]error, len(r.cfg.Endpoints))
	endpoints := make([]remote.Endpoint, len(faults))
	var calls sync.WaitGroup
	for i, text := range r.cfg.Endpoints {
		calls.Go(func() {
			if endpoints[i], faults[i] = remote.ParseEndpoint(text, remote.Kind(r.cfg.Kind)); faults[i] == nil {
				_, faults[i] = r.add(ctx, endpoints[i])
			}
		})
	}
	calls.Wait()
	err := errors.Join(faults...)
	if n := r.able(); err != nil && n < r.cfg.MinInstances && !more {
		return fmt.Errorf("%d instances are there, expected inference.min_instances = %d: %s", n, r.cfg.MinInstances, line(err.Error()))
	}
	for i, fault := range faults {
		r.sought[endpoints[i].URL] = func() {}
		if fault != nil {
			r.late = append(r.late, endpoints[i])
		}
	}
	return nil
}

// seek calls the server of an endpoint until it is in the fleet, and parts with
// it when the result is called.
func (r *Roster) seek(e remote.Endpoint) (cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.tasks.Go(func() {
		if r.find(ctx, e) {
			s := r.server(e.URL)
			<-ctx.Done()
			r.part(s)
		}
	})
	return cancel
}

// find calls the server of an endpoint until it is in the fleet, and reports
// whether it is before ctx ends.
func (r *Roster) find(ctx context.Context, e remote.Endpoint) bool {
	last := ""
	for {
		_, err := r.add(ctx, e)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != last {
			r.news.notes.Say("%s; it is called again until it answers", line(err.Error()))
			last = err.Error()
		}
		again := time.NewTimer(callAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// watch follows the list of servers, where there is one.
func (r *Roster) watch() {
	if r.cfg.Watch == "" {
		return
	}
	r.tasks.Go(func() {
		check := func(text string) error {
			_, err := remote.ParseEndpoint(text, remote.Kind(r.cfg.Kind))
			return err
		}
		err := discover.Watch(r.ctx, r.cfg.Watch, watchEvery, check, func(list []string, err error) {
			if err == nil {
				err = r.follow(list)
			}
			if err != nil {
				r.news.notes.Say("inference.watch: %s; the instances stay as they are", line(err.Error()))
			}
		})
		if err != nil && r.ctx.Err() == nil {
			r.news.notes.Say("inference.watch: %s", line(err.Error()))
		}
	})
}

// follow seeks what is new in a list of endpoints, and parts with what is not in
// it any more. Those of the configuration stay. A list with a fault changes
// nothing.
func (r *Roster) follow(list []string) error {
	listed := map[string]remote.Endpoint{}
	for _, text := range append(list[:len(list):len(list)], r.cfg.Endpoints...) {
		e, err := remote.ParseEndpoint(text, remote.Kind(r.cfg.Kind))
		if err != nil {
			return err
		}
		listed[e.URL] = e
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for url, cancel := range r.sought {
		if _, ok := listed[url]; !ok {
			cancel()
			delete(r.sought, url)
		}
	}
	for url, e := range listed {
		if _, ok := r.sought[url]; !ok {
			r.sought[url] = r.seek(e)
		}
	}
	return nil
}

// part takes s out of the fleet when it has ended what it samples, or its time
// for that is up. One that has come in its place stays.
func (r *Roster) part(s *server) {
	if s == nil || r.ctx.Err() != nil || r.server(s.ID()) != s {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, leaveIn)
	defer cancel()
	r.news.notes.Say("instance %s is on the list of inference.watch no more: it drains", s.ID())
	_ = r.fleet.Drain(ctx, s) // at the latest its end ends what it has
	r.expel(s)
}

// expel takes s out of the fleet, where it still is.
func (r *Roster) expel(s *server) {
	if err := r.remove(r.ctx, s); err != nil && r.ctx.Err() == nil && !errors.Is(err, control.ErrNotFound) {
		r.news.notes.Say("%v", err)
	}
}

// tend takes out the servers that have been silent for too long.
func (r *Roster) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, s := range r.silent(now) {
				r.giveUp(s)
			}
		case <-r.ctx.Done():
			return
		}
	}
}

// silent are the servers that joined by themselves and have not answered for
// giveUpAfter, and those that the fleet has retired. Those that the configuration
// or its list names stay.
func (r *Roster) silent(now time.Time) (all []*server) {
	status := r.fleet.Status()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range status.Instances {
		s, ok := r.servers[st.ID]
		if _, named := r.sought[st.ID]; !ok || named {
			continue
		}
		ill := st.State == fleet.Dead || st.State == fleet.Retired || st.State == fleet.Stale && st.PublishFail != ""
		switch {
		case !ill:
			s.silent = time.Time{}
		case s.silent.IsZero():
			s.silent = now
		case now.Sub(s.silent) >= giveUpAfter:
			all = append(all, s)
		}
	}
	return all
}

// giveUp takes out a server that is silent. It may join again, unless the fleet
// has retired it.
func (r *Roster) giveUp(s *server) {
	m, ok := r.member(s.ID())
	if !ok {
		return
	}
	r.news.notes.Say("instance %s has been %s for %v: it leaves", s.ID(), m.State, giveUpAfter)
	if m.State != fleet.Retired.String() {
		r.mu.Lock()
		if len(r.givenUp) >= mostGivenUp {
			clear(r.givenUp)
		}
		r.givenUp[s.ID()] = true
		r.mu.Unlock()
	}
	r.expel(s)
}
