// Package instances starts what samples for a run: the engines of this process, the
// connections to servers, and the fleet of both.
package instances

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/fleet/membership"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// Deps are what instances need besides the run's configuration.
type Deps struct {
	Shape *model.Config
	// Computes is the fingerprint that an easyrl server must report for its model.
	Computes string
	// Numerics are what an easyrl server must report as those in which it computes; zero accepts any.
	Numerics npu.Identity
	// CanaryTokens are the first tokens of the run's prompts. There may be fewer than a canary needs.
	CanaryTokens []int32
	Engine       func(cfg engine.Config) (*engine.Engine, error) // starts an engine in this process
	Fleet        fleet.Config                                    // timeouts, retries and health thresholds
	Token        string                                          // bearer token of all servers; may be empty
	Spans        *trace.Spans                                    // gets a row per instance; may be nil
	Rest         func(resting bool)                              // engine.Config.Rest of each engine; may be nil
	Say          notice.Printer
	Dir          string            // the run's folder, for instances.json; empty saves nothing
	Trainer      string            // ID with which to claim servers; empty draws one
	Dial         membership.Dialer // connects to a server; nil connects over HTTP
	Adapters     bool              // the run publishes only LoRA adapters
	// Verification verifies vLLM and SGLang servers; nil compares them with this process's
	// decoder. Instances close it.
	Verification Verification
}

// Verification verifies servers by log-probabilities.
type Verification interface {
	Canary() *publish.Canary
	// SetWeights sets the weights being published; nil if they are not a snapshot.
	SetWeights(w *model.Snapshot)
	Close() error
}

// Instances are the instances that sample for a run. Publish must not be called
// concurrently.
type Instances struct {
	fleet   *fleet.Fleet
	engines []*engine.Engine
	members *membership.Membership
	canary  Verification
	threads int        // number of threads of reader
	reader  npu.Device // queue that reads published weights; set by the first Publish
	reading sync.Mutex // held by snapshots while they read through reader
}

// Start starts a run's engines and connects to its servers. Call Begin next.
func Start(ctx context.Context, cfg *configs.Config, deps *Deps) (*Instances, error) {
	announcer := membership.NewAnnouncer(ctx, deps.Say)
	fc := fleetConfig(cfg, deps)
	fc.Notify = announcer.FleetEvent
	f, err := fleet.New(fc)
	if err != nil {
		announcer.Close()
		return nil, err
	}
	ref, err := verification(cfg, deps)
	if err != nil {
		announcer.Close()
		return nil, errors.Join(err, f.Close())
	}
	in := &Instances{fleet: f, threads: cfg.Device.Threads, canary: ref}
	mc, err := membershipConfig(cfg, deps, in.canary)
	mc.Wait = fc.EmptyWait
	if err == nil {
		in.members, err = membership.New(ctx, mc, f, announcer)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
		announcer.Close()
		return nil, err
	}
	in.engines, err = startEngines(ctx, cfg, deps, f)
	if err == nil {
		err = in.members.Connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// Probe connects to a run's servers and closes the connections. It starts no engine and
// leaves the servers as they are. The error is the one with which Start would refuse them.
func Probe(ctx context.Context, cfg *configs.Config, deps *Deps) ([]membership.Probed, error) {
	ref, err := verification(cfg, deps)
	if err != nil {
		return nil, err
	}
	mc, err := membershipConfig(cfg, deps, ref)
	if err != nil {
		return nil, errors.Join(err, ref.Close())
	}
	probed, err := membership.Probe(ctx, mc, cfg.Inference.Instances)
	return probed, errors.Join(err, ref.Close())
}

// verification returns deps.Verification, or by default the comparison with this process's decoder.
func verification(cfg *configs.Config, deps *Deps) (Verification, error) {
	if deps.Verification != nil {
		return deps.Verification, nil
	}
	numerics, err := npu.ParseNumerics(cfg.Device.Numerics)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	prompt := canary.Prompt(deps.Shape, deps.CanaryTokens, publish.CanaryTokens)
	return canary.NewReference(deps.Shape, numerics, prompt), nil
}

// fleetConfig returns the configuration of a run's fleet.
func fleetConfig(cfg *configs.Config, deps *Deps) fleet.Config {
	fc := deps.Fleet
	fc.Vocab, fc.MinServing = deps.Shape.VocabSize, cfg.Inference.MinInstances
	fc.EmptyWait = time.Duration(cfg.Inference.WaitSeconds) * time.Second
	fc.Exact = cfg.Train.Backend == configs.EasyRL && cfg.Device.Kind == configs.CPU && cfg.Rollout.TopP == 1 &&
		cfg.Rollout.TopK == 0
	fc.Watchdog = max(fc.Watchdog, fc.EmptyWait+fc.CallTimeout)
	c := &cfg.Inference
	if c.Kind == configs.Embedded && cfg.Control.Listen == "" && c.Watch == "" && len(c.Endpoints) == 0 {
		fc.EmptyWait = time.Second // no server can join
	}
	return fc
}

// membershipConfig returns the configuration of a run's servers. ref holds the
// log-probabilities to which a server's are compared.
func membershipConfig(cfg *configs.Config, deps *Deps, ref Verification) (membership.Config, error) {
	c := &cfg.Inference
	mc := membership.Config{Kind: c.Kind, Watch: c.Watch, MinInstances: c.MinInstances,
		MayJoin: cfg.Control.Listen != "" || c.Watch != "",
		Dir:     deps.Dir, WeightsDir: c.WeightsDir, Spans: deps.Spans, Dial: deps.Dial,
		Client: remote.Config{Token: deps.Token,
			Trainer: remote.Trainer{ID: cmp.Or(deps.Trainer, rand.Text()), Name: trainerName(cfg)},
			Context: EngineConfig(cfg, "", deps.Shape).Context, Adapters: deps.Adapters,
			Computes: deps.Computes, Numerics: deps.Numerics, Canary: ref.Canary()}}
	if mc.WeightsDir == "" {
		mc.WeightsDir, mc.RemoveWeights = filepath.Join(cfg.Run.Dir, "weights"), true
	}
	for _, text := range c.Endpoints {
		e, err := remote.ParseEndpoint(text, mc.Kind)
		if err != nil {
			return mc, usage.Errorf("inference.endpoints has %w", err)
		}
		mc.Endpoints = append(mc.Endpoints, e)
	}
	return mc, nil
}

// trainerName returns the run's name as servers show it to other trainers.
func trainerName(cfg *configs.Config) string {
	dir, err := filepath.Abs(cfg.Run.Dir)
	if err != nil {
		dir = cfg.Run.Dir
	}
	name := fmt.Sprintf("run %s in %s", cfg.Run.Name, dir)
	if host, err := os.Hostname(); err == nil {
		name += " on " + host
	}
	return name
}

// startEngines starts the engines of this process and adds them to the fleet.
func startEngines(ctx context.Context, cfg *configs.Config, deps *Deps, f *fleet.Fleet) (
	all []*engine.Engine, err error) {
	for i := range cfg.Inference.Instances {
		id := fmt.Sprintf("embedded-%d", i+1)
		track := deps.Spans.Track(id)
		ec := EngineConfig(cfg, id, deps.Shape)
		ec.Rest = deps.Rest
		if track.Records() {
			ec.Span = func(s engine.Span) {
				track.Add(trace.NoStep, s.Name, s.Start, s.Duration, trace.Note{Tokens: s.Tokens, Flows: s.Seeds})
			}
		}
		e, err := deps.Engine(ec)
		if err != nil {
			return nil, err
		}
		if err := f.Add(ctx, e); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		all = append(all, e)
	}
	return all, nil
}

// EngineConfig returns the configuration of an engine of this process, with room for the
// run's longest prompt and response.
func EngineConfig(cfg *configs.Config, id string, shape *model.Config) engine.Config {
	return engine.Config{ID: id, MaxRunning: cfg.Inference.MaxRunning, Released: cfg.Swaps(),
		Context: min(shape.MaxPositions, cfg.Data.MaxPromptTokens+cfg.Rollout.MaxTokens)}
}

// Allocate makes the engines of this process allocate the memory that they sample with.
func (in *Instances) Allocate(ctx context.Context) error {
	for _, e := range in.engines {
		if err := e.Allocate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Release makes the engines of this process free the memory that they sample with, as soon as they
// have no requests.
func (in *Instances) Release(ctx context.Context) error {
	for _, e := range in.engines {
		if err := e.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Fleet returns the fleet of all instances.
func (in *Instances) Fleet() *fleet.Fleet { return in.fleet }

// Begin lets servers join until Close, also at the control address if live is not nil.
// It returns once the run has enough instances.
func (in *Instances) Begin(ctx context.Context, live *control.Server) error {
	return in.members.Begin(ctx, live)
}

// Publish makes w the weights that the fleet samples with. The fleet reads them through a separate queue of their
// device, so that servers that join later can receive them while the trainer computes.
func (in *Instances) Publish(ctx context.Context, w inference.Weights) (err error) {
	snapshot, _ := w.(*model.Snapshot)
	if snapshot != nil {
		if in.reader == nil {
			if in.reader, err = snapshot.Weights().Fork(in.threads); err != nil {
				return err
			}
		}
		snapshot.ReadWith(in.reader, &in.reading)
	}
	in.canary.SetWeights(snapshot)
	return in.fleet.Publish(ctx, w)
}

// Close stops all sampling and waits for it to end.
func (in *Instances) Close() error {
	err := errors.Join(in.members.Close(), in.canary.Close())
	if in.reader != nil {
		err = errors.Join(err, in.reader.Close())
	}
	return err
}
