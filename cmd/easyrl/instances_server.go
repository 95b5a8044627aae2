package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/discover"
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

// probed is an instance that says whether it is well.
type probed interface {
	inference.Instance
	Probe(ctx context.Context) error
}

// dialer calls the server of an endpoint and says of what kind it is.
type dialer func(ctx context.Context, e configs.Endpoint) (inst probed, kind string, err error)

// server is an inference server with its rows in the trace.
type server struct {
	probed
	endpoint configs.Endpoint
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
	return s.probed.Generate(ctx, req)
}

// Publish is the server's, as a span.
func (s *server) Publish(ctx context.Context, w inference.Weights) (string, error) {
	defer s.track.Begin(int(w.Version()), "publish").End()
	return s.probed.Publish(ctx, w)
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
func (in *instances) callServers(ctx context.Context, more bool) error {
	faults := make([]error, len(in.cfg.Endpoints))
	endpoints := make([]configs.Endpoint, len(faults))
	var calls sync.WaitGroup
	for i, text := range in.cfg.Endpoints {
		calls.Go(func() {
			if endpoints[i], faults[i] = configs.ParseEndpoint(text, in.cfg.Kind); faults[i] == nil {
				_, faults[i] = in.add(ctx, endpoints[i])
			}
		})
	}
	calls.Wait()
	err := errors.Join(faults...)
	if n := in.able(); err != nil && n < in.cfg.MinInstances && !more {
		return fmt.Errorf("%d instances are there, expected inference.min_instances = %d: %w", n, in.cfg.MinInstances, oneLine(err))
	}
	for i, fault := range faults {
		in.sought[endpoints[i].URL] = func() {}
		if fault != nil {
			in.late = append(in.late, endpoints[i])
		}
	}
	return nil
}

// seek calls the server of an endpoint until it is in the fleet, and parts with
// it when the result is called.
func (in *instances) seek(e configs.Endpoint) (cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(in.ctx)
	in.tasks.Go(func() {
		if in.find(ctx, e) {
			s := in.server(e.URL)
			<-ctx.Done()
			in.part(s)
		}
	})
	return cancel
}

// find calls the server of an endpoint until it is in the fleet, and reports
// whether it is before ctx ends.
func (in *instances) find(ctx context.Context, e configs.Endpoint) bool {
	last := ""
	for {
		_, err := in.add(ctx, e)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if err.Error() != last {
			in.news.notes.Say("%v; it is called again until it answers", oneLine(err))
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
func (in *instances) watch() {
	if in.cfg.Watch == "" {
		return
	}
	in.tasks.Go(func() {
		check := func(text string) error {
			_, err := configs.ParseEndpoint(text, in.cfg.Kind)
			return err
		}
		err := discover.Watch(in.ctx, in.cfg.Watch, watchEvery, check, func(list []string, err error) {
			if err == nil {
				err = in.follow(list)
			}
			if err != nil {
				in.news.notes.Say("inference.watch: %v; the instances stay as they are", oneLine(err))
			}
		})
		if err != nil && in.ctx.Err() == nil {
			in.news.notes.Say("inference.watch: %v", oneLine(err))
		}
	})
}

// follow seeks what is new in a list of endpoints, and parts with what is not in
// it any more. Those of the configuration stay. A list with a fault changes
// nothing.
func (in *instances) follow(list []string) error {
	listed := map[string]configs.Endpoint{}
	for _, text := range append(list[:len(list):len(list)], in.cfg.Endpoints...) {
		e, err := configs.ParseEndpoint(text, in.cfg.Kind)
		if err != nil {
			return err
		}
		listed[e.URL] = e
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for url, cancel := range in.sought {
		if _, ok := listed[url]; !ok {
			cancel()
			delete(in.sought, url)
		}
	}
	for url, e := range listed {
		if _, ok := in.sought[url]; !ok {
			in.sought[url] = in.seek(e)
		}
	}
	return nil
}

// part takes s out of the fleet when it has ended what it samples, or its time
// for that is up. One that has come in its place stays.
func (in *instances) part(s *server) {
	if s == nil || in.ctx.Err() != nil || in.server(s.ID()) != s {
		return
	}
	ctx, cancel := context.WithTimeout(in.ctx, leaveIn)
	defer cancel()
	in.news.notes.Say("instance %s is on the list of inference.watch no more: it drains", s.ID())
	_ = in.fleet.Drain(ctx, s) // at the latest its end ends what it has
	in.expel(s)
}

// expel takes s out of the fleet, where it still is.
func (in *instances) expel(s *server) {
	if err := in.remove(in.ctx, s); err != nil && in.ctx.Err() == nil && !errors.Is(err, control.ErrNoMember) {
		in.news.notes.Say("%v", err)
	}
}

// tend takes out the servers that have been silent for too long.
func (in *instances) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, s := range in.silent(now) {
				in.giveUp(s)
			}
		case <-in.ctx.Done():
			return
		}
	}
}

// silent are the servers that joined by themselves and have not answered for
// giveUpAfter, and those that the fleet has retired. Those that the configuration
// or its list names stay.
func (in *instances) silent(now time.Time) (all []*server) {
	status := in.fleet.Status()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, st := range status.Instances {
		s, ok := in.servers[st.ID]
		if _, named := in.sought[st.ID]; !ok || named {
			continue
		}
		ill := st.State == inference.Dead || st.State == inference.Retired || st.State == inference.Stale && st.PublishFail != ""
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
func (in *instances) giveUp(s *server) {
	m, ok := in.member(s.ID())
	if !ok {
		return
	}
	in.news.notes.Say("instance %s has been %s for %v: it leaves", s.ID(), m.State, giveUpAfter)
	if m.State != inference.Retired.String() {
		in.mu.Lock()
		if len(in.givenUp) >= mostGivenUp {
			clear(in.givenUp)
		}
		in.givenUp[s.ID()] = true
		in.mu.Unlock()
	}
	in.expel(s)
}
