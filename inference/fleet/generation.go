package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// generation is the period from one publish to the next, with the weights of the first. Nothing reads the
// weights after end has returned, so the trainer may then change them. A generation's fields do not change.
type generation struct {
	fleet   *Fleet
	weights inference.Weights // nil before the first publish
	ctx     context.Context   // ends with the generation
	cancel  context.CancelFunc
	reads   sync.WaitGroup // publishes that may read the weights, and goroutines that lead to them
}

func newGeneration(f *Fleet, w inference.Weights) *generation {
	ctx, cancel := context.WithCancel(f.ctx)
	return &generation{fleet: f, weights: w, ctx: ctx, cancel: cancel}
}

// end stops all readers of the weights and waits for them.
func (g *generation) end() {
	g.cancel()
	g.reads.Wait()
}

// publishAll starts a publish to each instance. See state.Machine.Targets for the results and how
// long to wait for them. The publishes to awaited instances end with ctx.
func (g *generation) publishAll(ctx context.Context) (awaited, failed results, patience time.Duration) {
	f := g.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	awaitedOrders, failedOrders, patience := f.state.Targets()
	start := func(ctx context.Context, orders []state.Order) results {
		r := results{done: make(chan error, len(orders)), n: len(orders)}
		for _, o := range orders {
			publish := g.publisher(ctx, f.instances[o.Instance], o)
			g.reads.Go(func() { r.done <- publish() })
		}
		return r
	}
	return start(ctx, awaitedOrders), start(g.ctx, failedOrders), patience
}

// publisher returns a function that publishes the weights to i and reports the outcome to
// the machine, or does nothing if there are no weights. The function must be called exactly once. The
// fleet must be locked while publisher runs, so that end waits for the function, but not while the
// function runs.
func (g *generation) publisher(ctx context.Context, i *instance, o state.Order) func() error {
	if g.weights == nil {
		return func() error { return nil }
	}
	g.reads.Add(1)
	return func() error {
		defer g.reads.Done()
		p := g.publishTo(ctx, i)
		f := g.fleet
		f.mu.Lock()
		defer f.mu.Unlock()
		p.Abandoned = ctx.Err() != nil
		err := f.state.Published(time.Now(), o, p)
		f.apply()
		return err
	}
}

// publishTo sends the weights to i and returns the outcome without Abandoned.
func (g *generation) publishTo(ctx context.Context, i *instance) state.Publication {
	cfg := &g.fleet.cfg
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.PublishTimeout, overdue(cfg.PublishTimeout))
	defer cancel()
	for _, parent := range []context.Context{g.ctx, i.ctx} {
		stop := context.AfterFunc(parent, cancel)
		defer stop()
	}
	sum, err := within(ctx, cfg.Watchdog, func() (string, error) { return i.Publish(ctx, g.weights) })
	if err == nil {
		err = g.runTrial(ctx, i)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, state.ErrStuck) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return state.Publication{Err: err}
	}
	return state.Publication{Checksum: g.weights.Checksum(), Reported: sum, Capacity: i.Capacity()}
}

// runTrial makes an instance that was silent sample a token under the new weights, and returns an
// error if it fails. It does nothing for other instances.
func (g *generation) runTrial(ctx context.Context, i *instance) error {
	f := g.fleet
	f.mu.Lock()
	trial := i.trial
	f.mu.Unlock()
	if trial == nil {
		return nil
	}
	req := *trial
	req.Version = g.weights.Version()
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.ProbeTimeout, overdue(f.cfg.ProbeTimeout))
	defer cancel()
	out, err := within(ctx, f.cfg.Watchdog, func() ([]inference.Completion, error) { return i.Generate(ctx, req) })
	switch {
	case err == nil:
		err = checkAnswer(out, &req, g.weights.Checksum(), f.cfg.Vocab)
	case ctx.Err() != nil && !errors.Is(err, state.ErrStuck):
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("sample a token: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.trial == trial { // the instance has not been silent again meanwhile
		i.trial = nil
	}
	return nil
}

// probeUntilServing probes i and publishes the weights to it after a successful probe, until i takes
// them or the machine says to stop.
func (g *generation) probeUntilServing(i *instance, p state.Probe) {
	t := time.NewTimer(g.fleet.cfg.ProbeEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-g.ctx.Done():
		case <-i.ctx.Done():
		}
		if !g.keepProbing(p) {
			return
		}
		if g.probe(i) == nil && !g.publishProbed(i, p) {
			return
		}
		t.Reset(g.fleet.cfg.ProbeEvery)
	}
}

// keepProbing asks the machine whether to keep probing.
func (g *generation) keepProbing(p state.Probe) bool {
	g.fleet.mu.Lock()
	defer g.fleet.mu.Unlock()
	return g.fleet.state.KeepProbing(p)
}

// probe probes i once.
func (g *generation) probe(i *instance) error {
	cfg := &g.fleet.cfg
	ctx, cancel := context.WithTimeoutCause(g.ctx, cfg.ProbeTimeout, overdue(cfg.ProbeTimeout))
	defer cancel()
	_, err := within(ctx, cfg.Watchdog, func() (struct{}, error) {
		return struct{}{}, i.Instance.(inference.Prober).Probe(ctx)
	})
	return err
}

// publishProbed publishes the weights to i after a successful probe and reports whether to keep
// probing.
func (g *generation) publishProbed(i *instance, p state.Probe) bool {
	f := g.fleet
	f.mu.Lock()
	o, ok := f.state.Probed(p)
	if !ok {
		f.mu.Unlock()
		return false
	}
	publish := g.publisher(g.ctx, i, o)
	f.mu.Unlock()
	_ = publish() // the machine has the outcome
	return g.keepProbing(p)
}
