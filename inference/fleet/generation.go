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

// generation lasts from one publish to the next. Nothing reads its weights after end, so the
// trainer may then change them. Its fields do not change.
type generation struct {
	fleet   *Fleet
	weights inference.Weights // nil before the first publish
	ctx     context.Context   // ends with the generation
	cancel  context.CancelFunc
	reads   sync.WaitGroup // goroutines that read the weights or probe instances to publish them
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

// publishAll starts a publish to each instance. Publish waits for awaited, and once patience
// has passed only while too few serve. It waits for failed, the instances that failed
// before, only while too few serve.
func (g *generation) publishAll(ctx context.Context) (awaited, failed results, patience time.Duration) {
	f := g.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	now, later, patience := f.state.Targets()
	start := func(ctx context.Context, orders []state.Order) results {
		r := results{make(chan error, len(orders)), len(orders)}
		for _, o := range orders {
			publish := g.publisher(ctx, f.instances[o.Instance], o)
			g.reads.Go(func() { r.done <- publish() })
		}
		return r
	}
	return start(ctx, now), start(g.ctx, later), patience
}

// publisher returns a function that publishes the weights to i and reports the outcome to
// the machine. Without weights it does nothing. The fleet is locked while publisher runs,
// but not while the function does.
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

// publishTo sends the weights to i.
func (g *generation) publishTo(ctx context.Context, i *instance) state.Publication {
	cfg := &g.fleet.cfg
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.PublishTimeout, overdue(cfg.PublishTimeout))
	defer cancel()
	for _, ends := range []context.Context{g.ctx, i.ctx} {
		stop := context.AfterFunc(ends, cancel)
		defer stop()
	}
	sum, err := within(ctx, cfg.Watchdog, func() (string, error) { return i.Publish(ctx, g.weights) })
	if err == nil {
		err = g.try(ctx, i)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, state.ErrStuck) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return state.Publication{Err: err}
	}
	return state.Publication{Checksum: g.weights.Checksum(), Reported: sum, Capacity: i.Capacity()}
}

// try makes an instance that was silent sample a token of the new weights.
func (g *generation) try(ctx context.Context, i *instance) error {
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
	if i.trial == trial {
		i.trial = nil
	}
	return nil
}

// probeUntilServing probes i until it answers and takes the weights, or the machine says to stop.
func (g *generation) probeUntilServing(i *instance, p state.Probe) {
	t := time.NewTimer(g.fleet.cfg.ProbeEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-g.ctx.Done():
		case <-i.ctx.Done():
		}
		if !g.keepProbing(p) || g.probe(i) == nil && !g.publishProbed(i, p) {
			return
		}
		t.Reset(g.fleet.cfg.ProbeEvery)
	}
}

// keepProbing reports whether to keep probing.
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
