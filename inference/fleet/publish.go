package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
)

// Publish makes w the fleet's weights. All instances stop serving, and each serves again
// when it reports w's checksum. Queued requests for other weights end with ErrStale.
//
// Publish sends w at once to all instances that are not DRAINING or RETIRED, and waits until
// each has taken it, failed or timed out. When earlier publishes show how long instances take,
// Publish waits at most twice as long, provided that MinServing instances serve by then; the
// others serve when they have taken w. It waits for instances that are DEAD or did not take the
// last weights only while fewer than MinServing instances serve. If too few serve after that,
// Publish waits for instances to join or recover, and returns ErrNoInstance after EmptyWait.
//
// When Publish returns nil, no instance reads older weights, except one that ignored its
// deadline. w must not change until the next Publish or Close returns.
func (f *Fleet) Publish(ctx context.Context, w inference.Weights) error {
	f.publishMu.Lock()
	defer f.publishMu.Unlock()
	version := w.Version()
	if version < 1 {
		return fmt.Errorf("publish version %d: expected 1 or more", version)
	}
	old, gen, err := f.begin(w)
	if err != nil {
		return fmt.Errorf("publish version %d: %w", version, err)
	}
	defer f.finish()
	old.end()

	awaited, failed, patience := gen.publishAll(ctx)
	faults := awaited.wait(ctx, patience, f.haveEnough)
	faults = append(faults, failed.wait(ctx, 0, f.haveEnough)...)
	f.finish() // from here on, too few instances are reported
	if f.awaitEnough(ctx) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("publish version %d: %w", version, context.Cause(ctx))
	}
	if f.ctx.Err() != nil {
		return fmt.Errorf("publish version %d: fleet %w", version, inference.ErrClosed)
	}
	few := fmt.Errorf("publish version %d: %w: %d, expected at least %d", version, inference.ErrNoInstance,
		f.Status().Size, f.cfg.MinServing)
	return errors.Join(append([]error{few}, faults...)...)
}

// begin makes w the current weights, which no instance holds yet, and returns the old and
// the new generation.
func (f *Fleet) begin(w inference.Weights) (old, gen *generation, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.state.Begin(time.Now(), w.Version()); err != nil {
		return nil, nil, err
	}
	old, f.gen = f.gen, newGeneration(f, w)
	f.apply()
	return old, f.gen, nil
}

// finish ends a publish and re-enables reports that too few instances serve.
func (f *Fleet) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Finish(time.Now())
	f.apply()
}

func (f *Fleet) haveEnough() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enough()
}

// awaitEnough waits until enough instances serve, at most EmptyWait. It reports false if
// they do not or ctx has ended.
func (f *Fleet) awaitEnough(ctx context.Context) bool {
	f.mu.Lock()
	if f.enough() {
		f.mu.Unlock()
		return ctx.Err() == nil
	}
	if f.enoughNow == nil {
		f.enoughNow = make(chan struct{})
	}
	enough := f.enoughNow
	f.mu.Unlock()
	t := time.NewTimer(f.cfg.EmptyWait)
	defer t.Stop()
	select {
	case <-enough:
		return true
	case <-t.C:
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// results holds the results of n publishes as they come, each nil or an error.
type results struct {
	done chan error
	n    int
}

// wait collects errors until all results are in or ctx ends. Once patience has passed, it
// also stops when enough reports true.
func (r *results) wait(ctx context.Context, patience time.Duration, enough func() bool) []error {
	var faults []error
	t := time.NewTimer(patience)
	defer t.Stop()
	for n, late := 0, patience == 0; n < r.n && !(late && enough()); {
		select {
		case err := <-r.done:
			n++
			if err != nil {
				faults = append(faults, err)
			}
		case <-t.C:
			late = true
		case <-ctx.Done():
			return faults
		}
	}
	return faults
}
