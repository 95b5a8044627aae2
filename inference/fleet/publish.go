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
// Publish sends w at once to all instances that are not DRAINING or RETIRED. It waits until each has
// taken w, failed or timed out, with two exceptions that apply while at least MinServing instances
// serve. It does not wait for instances that are DEAD or whose last publish failed. And it waits for
// the others at most twice as long as the slowest took in earlier publishes, if that is known; they
// serve when they have taken w. If fewer than MinServing instances serve in the end, Publish waits
// for instances to join or recover, and returns ErrNoInstance after EmptyWait.
//
// When Publish returns nil, no instance reads older weights, except one that ignored its
// deadline. w must not change until the next Publish or Close has returned.
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

// finish records that a publish has ended, which re-enables reports that too few instances
// serve. It may be called twice.
func (f *Fleet) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Finish(time.Now())
	f.apply()
}

// haveEnough is enough for callers that have not locked f.
func (f *Fleet) haveEnough() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enough()
}

// awaitEnough waits until enough instances serve and reports true. It reports false if that takes
// longer than EmptyWait, or if ctx ends or the fleet closes first.
func (f *Fleet) awaitEnough(ctx context.Context) bool {
	f.mu.Lock()
	if f.enough() {
		f.mu.Unlock()
		return ctx.Err() == nil
	}
	if f.enoughServing == nil {
		f.enoughServing = make(chan struct{})
	}
	enough := f.enoughServing
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

// results receives the results of publishes.
type results struct {
	done chan error // gets one result per publish, nil or an error; has room for all
	n    int        // number of publishes
}

// wait returns the errors among the results. It returns when all results are in, when ctx ends, or
// when patience has passed and enough reports true.
func (r *results) wait(ctx context.Context, patience time.Duration, enough func() bool) []error {
	var faults []error
	t := time.NewTimer(patience)
	defer t.Stop()
	impatient := patience == 0
	for n := 0; n < r.n; {
		if impatient && enough() {
			return faults
		}
		select {
		case err := <-r.done:
			n++
			if err != nil {
				faults = append(faults, err)
			}
		case <-t.C:
			impatient = true
		case <-ctx.Done():
			return faults
		}
	}
	return faults
}
