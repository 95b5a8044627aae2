package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// instances are the fleet that samples for a run: engines of this process, and
// servers that may come and go.
type instances struct {
	fleet   *inference.Fleet
	engines []*engine.Engine
	cfg     *configs.Inference
	wait    time.Duration // for instances that are to join
	dial    dialer
	forget  func() error // what was written for servers; may be nil
	spans   *trace.Spans
	warn    func(format string, args ...any)
	canary  *canary
	reader  npu.Device // reads what is published; nil before the first publish
	readers int        // its threads

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  conc.WaitGroup
	late   []configs.Endpoint // of the configuration, that did not answer
	joined chan struct{}      // has something in it when a server has joined

	mu      sync.Mutex
	servers map[string]*server            // by ID
	coming  map[string]bool               // URLs that are being added
	sought  map[string]context.CancelFunc // endpoints that the configuration or what is watched names
	gone    time.Duration                 // that servers worked which have left
	givenUp map[string]bool               // URLs of servers that left since they did not answer

	news *news
}

// startInstances starts a run's engines, which have spans as their rows, and
// calls its servers, with which it bears as fc says beside cfg; rest, where there
// is one, hears of each engine whether it rests. begin follows.
func startInstances(ctx context.Context, f *folder, cfg *configs.Config, fc inference.FleetConfig, spans *trace.Spans,
	rest func(bool), warn func(format string, args ...any)) (*instances, error) {
	in := &instances{cfg: &cfg.Inference, spans: spans, warn: warn, joined: make(chan struct{}, 1),
		servers: map[string]*server{}, coming: map[string]bool{}, sought: map[string]context.CancelFunc{},
		givenUp: map[string]bool{}, news: &news{notes: report.NewNotes(warn), ill: map[string]bool{}}}
	in.ctx, in.cancel = context.WithCancel(ctx)
	fc.Vocab, fc.MinServing, fc.Notify = f.shape.VocabSize, cfg.Inference.MinInstances, in.news.hear
	fc.EmptyWait = time.Duration(cfg.Inference.WaitSeconds) * time.Second
	fc.Watchdog = max(fc.Watchdog, fc.EmptyWait+fc.CallTimeout)
	if cfg.Inference.Kind == configs.Embedded && cfg.Control.Listen == "" {
		fc.EmptyWait = time.Second // nobody joins engines of this process
	}
	in.wait = fc.EmptyWait
	var err error
	if in.fleet, err = inference.NewFleet(fc); err != nil {
		in.news.notes.Close()
		return nil, err
	}
	in.canary = &canary{folder: f}
	in.readers = cfg.Device.Threads
	if in.dial, in.forget, err = newDialer(cfg, in.canary); err == nil {
		err = in.startEngines(ctx, f, cfg, rest)
	}
	if err == nil {
		err = in.callServers(ctx, cfg.Control.Listen != "" || cfg.Inference.Watch != "")
	}
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	return in, nil
}

func (in *instances) startEngines(ctx context.Context, f *folder, cfg *configs.Config, rest func(bool)) error {
	_, each, _ := threads(cfg)
	for i := range cfg.Inference.Instances {
		id := fmt.Sprintf("embedded-%d", i+1)
		track := in.spans.Track(id)
		ec := engineConfig(cfg, id, f.shape)
		ec.Rest = rest
		if track.Records() {
			ec.Span = func(s engine.Span) {
				track.Add(trace.NoStep, s.Name, s.Start, s.Duration, trace.Note{Tokens: s.Tokens, Flows: s.Seeds})
			}
		}
		e, err := f.engine(ec, each)
		if err != nil {
			return err
		}
		in.engines = append(in.engines, e)
		if err := in.fleet.Add(ctx, e); err != nil {
			return errors.Join(err, e.Close())
		}
	}
	return nil
}

// engineConfig is that of an embedded engine: room for the longest prompt and
// response of the run.
func engineConfig(cfg *configs.Config, id string, shape *model.Config) engine.Config {
	return engine.Config{ID: id, MaxRunning: cfg.Inference.MaxRunning,
		Context: min(shape.MaxPositions, cfg.Data.MaxPromptTokens+cfg.Rollout.MaxTokens)}
}

// begin lets servers join, from now until close: those of the configuration that
// did not answer, those that the run watches, and those that control hears of.
// It returns when the run has as many instances as it needs.
func (in *instances) begin(ctx context.Context, control *control.Server) error {
	in.news.tellTo(control)
	for _, e := range in.late {
		in.sought[e.URL] = in.seek(e)
	}
	in.watch()
	in.tasks.Go(in.tend)
	control.Serve(in)
	return in.await(ctx)
}

// await returns when there are as many instances as the run needs.
func (in *instances) await(ctx context.Context) error {
	deadline := time.NewTimer(in.wait)
	defer deadline.Stop()
	for said := false; ; said = true {
		n := in.able()
		if n >= in.cfg.MinInstances {
			return nil
		}
		if !said {
			in.warn("waiting for instances: %d are there, expected %d", n, in.cfg.MinInstances)
		}
		select {
		case <-in.joined:
		case <-deadline.C:
			return fmt.Errorf("%d instances after %v, expected inference.min_instances = %d: %w", n, in.wait, in.cfg.MinInstances, inference.ErrNoInstance)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// able is the number of instances that hold the weights or may take them.
func (in *instances) able() (n int) {
	for _, st := range in.fleet.Status().Instances {
		if st.State != inference.Dead && st.State != inference.Draining && st.State != inference.Retired {
			n++
		}
	}
	return n
}

// close ends all sampling and waits for it.
func (in *instances) close() error {
	in.cancel()
	in.tasks.Wait()
	err := errors.Join(in.fleet.Close(), in.canary.close())
	if in.reader != nil {
		err = errors.Join(err, in.reader.Close())
	}
	if in.forget != nil {
		err = errors.Join(err, in.forget())
	}
	in.news.notes.Close()
	return err
}

// publish makes w what the fleet samples with. Where it is in host memory a device
// of its own reads it: what joins late gets it while the trainer's is at work.
func (in *instances) publish(ctx context.Context, w inference.Weights) (err error) {
	if s, ok := w.(*model.Snapshot); ok && s.Weights().Embed.Float32s() != nil {
		if in.reader == nil {
			if in.reader, err = openDevice(configs.CPU, in.readers); err != nil {
				return err
			}
		}
		s.ReadWith(in.reader)
	}
	in.canary.set(w)
	return in.fleet.Publish(ctx, w)
}

// busy is the time that the instances have been at work, in all.
func (in *instances) busy() time.Duration {
	var d time.Duration
	for _, e := range in.engines {
		d += e.Stats().Busy
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.servers {
		d += s.worked()
	}
	return d + in.gone
}
