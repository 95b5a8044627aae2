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
	"github.com/easyrl/easyrl/report"
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
)

// probed is an instance that says whether it is well.
type probed interface {
	inference.Instance
	Probe(ctx context.Context) error
}

// dialer calls the server of an endpoint and says of what kind it is.
type dialer func(ctx context.Context, e configs.Endpoint) (inst probed, kind string, err error)

// server is an inference server with its row in the trace.
type server struct {
	probed
	endpoint configs.Endpoint
	track    report.Track

	mu       sync.Mutex
	requests int
	since    time.Time // that there are any
	busy     time.Duration
}

// booted is a server that tells one life of its process from the next.
type booted struct {
	*server
	inference.Booter
}

// Generate is the server's, and a part of a span in which it had work.
func (s *server) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
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
			d := time.Since(s.since)
			s.busy += d
			s.track.Add("sample", s.since, d)
		}
	}()
	return s.probed.Generate(ctx, req)
}

// Publish is the server's, as a span.
func (s *server) Publish(ctx context.Context, w inference.Weights) (string, error) {
	start := time.Now()
	defer func() { s.track.Add(fmt.Sprintf("publish %d", w.Version()), start, time.Since(start)) }()
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
	if n := len(in.fleet.Status().Instances); err != nil && n < in.cfg.MinInstances && !more {
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

// seek calls the server of an endpoint until it is in the fleet, or the result
// is called.
func (in *instances) seek(e configs.Endpoint) (cancel context.CancelFunc) {
	ctx, cancel := context.WithCancel(in.ctx)
	in.tasks.Go(func() {
		last := ""
		for {
			_, err := in.add(ctx, e)
			if err == nil || ctx.Err() != nil {
				return
			}
			if err.Error() != last {
				in.news.note("%v; it is called again until it answers", oneLine(err))
				last = err.Error()
			}
			again := time.NewTimer(callAgain)
			select {
			case <-again.C:
			case <-ctx.Done():
			}
			again.Stop()
		}
	})
	return cancel
}

// watch follows the list of servers, where there is one.
func (in *instances) watch() {
	if in.cfg.Watch == "" {
		return
	}
	in.tasks.Go(func() {
		err := discover.Watch(in.ctx, in.cfg.Watch, watchEvery, func(list []string, err error) {
			if err == nil {
				err = in.follow(list)
			}
			if err != nil {
				in.news.note("inference.watch: %v; the instances stay as they are", oneLine(err))
			}
		})
		if err != nil && in.ctx.Err() == nil {
			in.news.note("inference.watch: %v", oneLine(err))
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
			in.tasks.Go(func() { in.part(url) })
		}
	}
	for url, e := range listed {
		if _, ok := in.sought[url]; !ok {
			in.sought[url] = in.seek(e)
		}
	}
	return nil
}

// part takes a server out of the fleet when it has ended what it samples, or its
// time for that is up.
func (in *instances) part(id string) {
	ctx, cancel := context.WithTimeout(in.ctx, leaveIn)
	defer cancel()
	in.mu.Lock()
	_, ok := in.servers[id]
	in.mu.Unlock()
	if !ok {
		return
	}
	in.news.note("instance %s is on the list of inference.watch no more: it drains", id)
	_ = in.fleet.Drain(ctx, id) // at the latest Remove ends what it has
	if err := in.Remove(in.ctx, id); err != nil && in.ctx.Err() == nil && !errors.Is(err, report.ErrNoMember) {
		in.news.note("%v", err)
	}
}
