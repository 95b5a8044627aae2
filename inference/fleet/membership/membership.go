// Package membership keeps the instances that sample for a run: engines of its process,
// and servers that come and go.
package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// Deps are what a roster has of its run.
type Deps struct {
	Shape        *model.Config
	Computes     string  // what an easyrl server's model must say that it computes
	CanaryTokens []int32 // the first tokens of the run's prompts; may be few
	// Engine starts an engine of this process.
	Engine func(cfg engine.Config) (*engine.Engine, error)
	// Bears says how the fleet bears with instances, beside what the configuration
	// says.
	Bears fleet.Config
	Token string             // of all servers; may be empty
	Spans *trace.Spans       // have the instances as rows; may be nil
	Rest  func(resting bool) // hears of each engine whether it rests; may be nil
	Warn  func(format string, args ...any)
	// Folder is the run's, which has what is known of its instances when it is
	// started again; empty keeps nothing. Begin needs it to be there.
	Folder string
	// Dial calls a server; nil calls it over HTTP.
	Dial Dialer
}

// Roster is the fleet of a run. Its methods may be called concurrently.
type Roster struct {
	fleet   *fleet.Fleet
	engines []*engine.Engine
	cfg     *configs.Inference
	wait    time.Duration // for instances that are to join
	dial    Dialer
	forget  func() error // what was written for servers; may be nil
	spans   *trace.Spans
	canary  *canary.Reference
	reader  npu.Device // reads what is published; nil before the first publish
	readers int        // its threads

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  conc.WaitGroup
	late   []remote.Endpoint // of the configuration, that did not answer
	joined chan struct{}     // has something in it when a server has joined

	mu      sync.Mutex
	servers map[string]*server            // by ID
	coming  map[string]bool               // URLs that are being added
	sought  map[string]context.CancelFunc // endpoints that the configuration or what is watched names
	gone    time.Duration                 // that servers worked which have left
	givenUp map[string]bool               // URLs of servers that left since they did not answer

	news *news
	kept *kept
}

// Start starts a run's engines and calls its servers. Begin follows.
func Start(ctx context.Context, cfg *configs.Config, deps Deps) (*Roster, error) {
	r := &Roster{cfg: &cfg.Inference, spans: deps.Spans, dial: deps.Dial, joined: make(chan struct{}, 1), canary: canary.NewReference(deps.Shape, canary.Prompt(deps.Shape, deps.CanaryTokens, remote.CanaryTokens)),
		readers: cfg.Device.Threads, servers: map[string]*server{}, coming: map[string]bool{}, sought: map[string]context.CancelFunc{},
		givenUp: map[string]bool{}, news: &news{notes: report.NewNotes(deps.Warn), warn: deps.Warn, ill: map[string]bool{}}}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.news.over = []context.Context{ctx, r.ctx} // the second ends a moment after the first
	fc := deps.Bears
	fc.Vocab, fc.MinServing, fc.Notify = deps.Shape.VocabSize, cfg.Inference.MinInstances, r.news.hear
	fc.HedgeAfter = time.Duration(cfg.Inference.HedgeAfter * float64(time.Second))
	fc.EmptyWait = time.Duration(cfg.Inference.WaitSeconds) * time.Second
	fc.Watchdog = max(fc.Watchdog, fc.EmptyWait+fc.CallTimeout)
	if cfg.Inference.Kind == configs.Embedded && cfg.Control.Listen == "" {
		fc.EmptyWait = time.Second // nobody joins engines of this process
	}
	r.wait = fc.EmptyWait
	var err error
	if r.fleet, err = fleet.New(fc); err != nil {
		r.news.notes.Close()
		return nil, err
	}
	r.kept, err = openKept(deps.Folder, r.news.notes)
	if err == nil && r.dial == nil {
		r.dial, r.forget, err = newDialer(cfg, &deps, r.canary, r.kept.of.Run)
	}
	if err == nil {
		err = r.startEngines(ctx, cfg, &deps)
	}
	if err == nil {
		err = r.callServers(ctx, cfg.Control.Listen != "" || cfg.Inference.Watch != "")
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Roster) startEngines(ctx context.Context, cfg *configs.Config, deps *Deps) error {
	for i := range cfg.Inference.Instances {
		id := fmt.Sprintf("embedded-%d", i+1)
		track := r.spans.Track(id)
		ec := Engine(cfg, id, deps.Shape)
		ec.Rest = deps.Rest
		if track.Records() {
			ec.Span = func(s engine.Span) {
				track.Add(trace.NoStep, s.Name, s.Start, s.Duration, trace.Note{Tokens: s.Tokens, Flows: s.Seeds})
			}
		}
		e, err := deps.Engine(ec)
		if err != nil {
			return err
		}
		r.engines = append(r.engines, e)
		if err := r.fleet.Add(ctx, e); err != nil {
			return errors.Join(err, e.Close())
		}
	}
	return nil
}

// Engine is how an embedded engine is configured: room for the longest prompt and
// response of the run.
func Engine(cfg *configs.Config, id string, shape *model.Config) engine.Config {
	return engine.Config{ID: id, MaxRunning: cfg.Inference.MaxRunning,
		Context: min(shape.MaxPositions, cfg.Data.MaxPromptTokens+cfg.Rollout.MaxTokens)}
}

// Fleet is what gives requests to the instances.
func (r *Roster) Fleet() *fleet.Fleet { return r.fleet }

// Begin lets servers join, from now until Close: those of the configuration that
// did not answer, those that the run watches, and those that control hears of.
// It returns when the run has as many instances as it needs.
func (r *Roster) Begin(ctx context.Context, control *control.Server) error {
	r.kept.save()
	r.news.tellTo(control)
	for _, e := range r.late {
		r.sought[e.URL] = r.seek(e)
	}
	r.watch()
	r.tasks.Go(r.tend)
	control.Serve(r)
	return r.await(ctx)
}

// await returns when there are as many instances as the run needs.
func (r *Roster) await(ctx context.Context) error {
	deadline := time.NewTimer(r.wait)
	defer deadline.Stop()
	for said := false; ; said = true {
		n := r.able()
		if n >= r.cfg.MinInstances {
			return nil
		}
		if !said {
			r.news.warn("waiting for instances: %d are there, expected %d", n, r.cfg.MinInstances)
		}
		select {
		case <-r.joined:
		case <-deadline.C:
			return fmt.Errorf("%d instances after %v, expected inference.min_instances = %d: %w", n, r.wait, r.cfg.MinInstances, inference.ErrNoInstance)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// able is the number of instances that hold the weights or may take them.
func (r *Roster) able() (n int) {
	for _, st := range r.fleet.Status().Instances {
		if st.State != fleet.Dead && st.State != fleet.Draining && st.State != fleet.Retired {
			n++
		}
	}
	return n
}

// Close ends all sampling and waits for it.
func (r *Roster) Close() error {
	r.cancel()
	r.tasks.Wait()
	err := errors.Join(r.fleet.Close(), r.canary.Close())
	if r.reader != nil {
		err = errors.Join(err, r.reader.Close())
	}
	if r.forget != nil {
		err = errors.Join(err, r.forget())
	}
	r.news.notes.Close()
	return err
}

// Publish makes w what the fleet samples with. Where it is in host memory a device
// of its own reads it: what joins late gets it while the trainer's is at work.
func (r *Roster) Publish(ctx context.Context, w inference.Weights) (err error) {
	if s, ok := w.(*model.Snapshot); ok && s.Weights().Embed.Float32s() != nil {
		if r.reader == nil {
			if r.reader, err = cpu.Open(r.readers); err != nil {
				return err
			}
		}
		s.ReadWith(r.reader)
	}
	snapshot, _ := w.(*model.Snapshot)
	r.canary.SetWeights(snapshot)
	return r.fleet.Publish(ctx, w)
}

// Busy is the time that the instances have been at work, in all.
func (r *Roster) Busy() time.Duration {
	var d time.Duration
	for _, e := range r.engines {
		d += e.Stats().Busy
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.servers {
		d += s.worked()
	}
	return d + r.gone
}

// line is the text of an error with the faults that it joins on one line.
func line(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
