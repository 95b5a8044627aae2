// Package instances starts what samples for a run: engines of its process, servers,
// and the fleet of both.
package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/inference/fleet/membership"
	"github.com/easyrl/easyrl/inference/remote"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/trace"
)

// Deps are what a run's instances need beside its configuration.
type Deps struct {
	Shape        *model.Config
	Computes     string                                          // what an easyrl server's model must report that it computes
	CanaryTokens []int32                                         // the first tokens of the run's prompts; may be few
	Engine       func(cfg engine.Config) (*engine.Engine, error) // starts an engine in this process
	Fleet        fleet.Config                                    // timeouts, retries and health thresholds
	Token        string                                          // bearer token of all servers; may be empty
	Spans        *trace.Spans                                    // has a row for each instance; may be nil
	Rest         func(resting bool)                              // engine.Config.Rest of each engine; may be nil
	Warn         func(format string, args ...any)
	Dir          string            // the run's folder, which keeps instances.json; empty keeps nothing
	Dial         membership.Dialer // connects to a server; nil connects over HTTP
}

// Instances sample for a run. Publish is called by one goroutine at a time.
type Instances struct {
	fleet   *fleet.Fleet
	members *membership.Membership
	canary  *canary.Reference
	threads int        // of reader
	reader  npu.Device // reads what is published; nil before the first publish
}

// Start starts a run's engines and connects to its servers. Begin follows.
func Start(ctx context.Context, cfg *configs.Config, deps *Deps) (*Instances, error) {
	announcer := membership.NewAnnouncer(ctx, deps.Warn)
	fc := fleetConfig(cfg, deps)
	fc.Notify = announcer.FleetEvent
	f, err := fleet.New(fc)
	if err != nil {
		announcer.Close()
		return nil, err
	}
	in := &Instances{fleet: f, threads: cfg.Device.Threads,
		canary: canary.NewReference(deps.Shape, canary.Prompt(deps.Shape, deps.CanaryTokens, publish.CanaryTokens))}
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
	err = startEngines(ctx, cfg, deps, f)
	if err == nil {
		err = in.members.Connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// fleetConfig is the configuration of a run's fleet.
func fleetConfig(cfg *configs.Config, deps *Deps) fleet.Config {
	fc := deps.Fleet
	fc.Vocab, fc.MinServing = deps.Shape.VocabSize, cfg.Inference.MinInstances
	fc.HedgeAfter = time.Duration(cfg.Inference.HedgeAfter * float64(time.Second))
	fc.EmptyWait = time.Duration(cfg.Inference.WaitSeconds) * time.Second
	fc.Watchdog = max(fc.Watchdog, fc.EmptyWait+fc.CallTimeout)
	if cfg.Inference.Kind == configs.Embedded && cfg.Control.Listen == "" {
		fc.EmptyWait = time.Second // no server can join
	}
	return fc
}

// membershipConfig names a run's servers. ref has the log-probabilities that theirs
// are compared with.
func membershipConfig(cfg *configs.Config, deps *Deps, ref *canary.Reference) (membership.Config, error) {
	c := &cfg.Inference
	mc := membership.Config{Kind: c.Kind, Watch: c.Watch, MinInstances: c.MinInstances, MayJoin: cfg.Control.Listen != "" || c.Watch != "",
		Dir: deps.Dir, WeightsDir: c.WeightsDir, Spans: deps.Spans, Dial: deps.Dial,
		Client: remote.Config{Token: deps.Token, Trainer: remote.Trainer{Name: trainerName(cfg)}, Context: EngineConfig(cfg, "", deps.Shape).Context,
			Computes: deps.Computes, Canary: &publish.Canary{Prompt: ref.Prompt(), Logprobs: ref.Logprobs}}}
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

// trainerName is how a server that the run publishes to names the run to others.
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
func startEngines(ctx context.Context, cfg *configs.Config, deps *Deps, f *fleet.Fleet) error {
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
			return err
		}
		if err := f.Add(ctx, e); err != nil {
			return errors.Join(err, e.Close())
		}
	}
	return nil
}

// EngineConfig is the configuration of an engine of this process, with room for the
// run's longest prompt and response.
func EngineConfig(cfg *configs.Config, id string, shape *model.Config) engine.Config {
	return engine.Config{ID: id, MaxRunning: cfg.Inference.MaxRunning,
		Context: min(shape.MaxPositions, cfg.Data.MaxPromptTokens+cfg.Rollout.MaxTokens)}
}

// Fleet gives requests to the instances.
func (in *Instances) Fleet() *fleet.Fleet { return in.fleet }

// Begin lets servers join until Close, at the control address too if live is not nil.
// It returns when the run has as many instances as it needs.
func (in *Instances) Begin(ctx context.Context, live *control.Server) error {
	return in.members.Begin(ctx, live)
}

// Publish makes w the weights that the fleet samples with. If w is in host memory, a
// device of its own reads it, so that servers that join later get it while the
// trainer's device computes.
func (in *Instances) Publish(ctx context.Context, w inference.Weights) (err error) {
	snapshot, _ := w.(*model.Snapshot)
	if snapshot != nil && snapshot.Weights().Embed.Float32s() != nil {
		if in.reader == nil {
			if in.reader, err = device.Open(device.CPU, in.threads); err != nil {
				return err
			}
		}
		snapshot.ReadWith(in.reader)
	}
	in.canary.SetWeights(snapshot)
	return in.fleet.Publish(ctx, w)
}

// Close ends all sampling and waits for it.
func (in *Instances) Close() error {
	err := errors.Join(in.members.Close(), in.canary.Close())
	if in.reader != nil {
		err = errors.Join(err, in.reader.Close())
	}
	return err
}
