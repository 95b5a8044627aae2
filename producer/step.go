package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/easyrl/easyrl/rollout"
)

// recheck is the interval at which a worker that waits for a slot asks the fleet for its target
// again. The target may rise although no group ends.
const recheck = time.Second

// step is a batch being sampled. It implements rollout.Stream.
//
// One goroutine runs run, which starts workers that run a task for each prompt. A slot is the right
// to have a group sampled by the fleet. A task holds one while its group is sampled, but not while it
// is scored.
type step struct {
	*Producer
	batch  rollout.Batch
	only   []int                   // indices of the prompts to sample, ascending
	groups chan rollout.Group      // has capacity for all groups, so that sends never block; closed by run
	cancel context.CancelCauseFunc // ends the step with an error
	freed  chan struct{}           // holds a token when a slot may have become free; see wake
	before Counters                // the run's totals when the step started
	work   conc.WaitGroup          // waits for run

	mu       sync.Mutex // guards inFlight, delivery and failed while workers run
	inFlight int        // number of slots in use
	delivery *delivery
	failed   []failure

	stats rollout.Stats // set by run, like err; Wait reads both after run has ended
	err   error
}

// failure is a prompt without a group.
type failure struct {
	index  int // index of the prompt in the batch
	prompt rollout.Prompt
	lost   bool // no instance could sample it; the prompt and its reward are not at fault
	err    error
}

func newStep(p *Producer, batch rollout.Batch) *step {
	only := slices.Sorted(slices.Values(batch.Only))
	for i := range batch.Prompts {
		if batch.Only == nil {
			only = append(only, i)
		}
	}
	return &step{
		Producer: p, batch: batch, only: only,
		groups:   make(chan rollout.Group, len(only)),
		freed:    make(chan struct{}, 1),
		before:   p.counters(),
		delivery: newDelivery(p.cfg.Gate, only),
	}
}

// Groups implements rollout.Stream.
func (s *step) Groups() <-chan rollout.Group { return s.groups }

// Wait implements rollout.Stream.
func (s *step) Wait() (rollout.Stats, error) {
	s.work.Wait()
	return s.stats, s.err
}

// run samples, scores and delivers the batch.
func (s *step) run(ctx context.Context) {
	if err := s.produce(ctx); err != nil {
		s.err = fmt.Errorf("produce step %d: %w", s.batch.Number, err)
	}
	close(s.groups)
	slices.SortFunc(s.failed, func(a, b failure) int { return cmp.Compare(a.index, b.index) })
	for i := range s.failed {
		if s.deps.Warn != nil {
			s.deps.Warn("step %d: gave up on %v", s.batch.Number, s.failed[i].err)
		}
	}
	after := s.counters()
	s.stats = rollout.Stats{Busy: after.Busy - s.before.Busy, Instances: after.Instances,
		Retries: after.Retries - s.before.Retries, Failed: len(s.failed),
		// includes retries of evaluations since the last step
		RewardRetries: after.RewardRetries - s.retries.Swap(after.RewardRetries)}
}

// produce samples, scores and delivers the groups. It returns when the step is complete or has
// failed and all workers have ended.
func (s *step) produce(ctx context.Context) error {
	if err := validate(&s.batch); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)
	s.dispatch(ctx)
	if s.delivery.complete() {
		return nil
	}
	return context.Cause(ctx)
}

// validate reports all faults of b in one error.
func validate(b *rollout.Batch) error {
	var faults []error
	if b.Version < 1 {
		faults = append(faults, fmt.Errorf("version is %d, expected at least 1", b.Version))
	}
	if len(b.Prompts) == 0 {
		faults = append(faults, errors.New("no prompts"))
	}
	for _, i := range b.Only {
		if i < 0 || i >= len(b.Prompts) {
			faults = append(faults, fmt.Errorf("index %d to sample, expected 0 to %d", i, len(b.Prompts)-1))
		}
	}
	return errors.Join(faults...)
}

// dispatch runs the tasks in the order of the prompts, as slots become free, and returns when all
// have ended. Only the worker that holds front takes the next prompt and waits for a slot. It then
// releases front, starts another worker unless one is already starting, and runs its task. A worker
// that finds front held after its task ends. So at most one worker waits.
func (s *step) dispatch(ctx context.Context) {
	var workers conc.WaitGroup
	var front sync.Mutex     // held by the worker that waits for a slot; guards next
	var starting atomic.Bool // whether a worker has been started but does not run yet
	next := 0                // place in s.only of the next prompt
	var work func()
	work = func() {
		starting.Store(false)
		for front.TryLock() {
			place := next
			found := place < len(s.only) && s.slot(ctx)
			if found {
				next++
			}
			front.Unlock()
			if !found {
				return
			}
			if starting.CompareAndSwap(false, true) {
				workers.Go(work)
			}
			if err := try(func() error { return s.task(ctx, s.only[place]) }); err != nil {
				s.cancel(err)
			}
		}
	}
	work()
	workers.Wait()
}

// try returns the error of do, or its panic as an error.
func try(do func() error) (err error) {
	if p := panics.Try(func() { err = do() }); p != nil {
		return p.AsError()
	}
	return err
}

// slot takes a slot, waiting until one is free. It returns false if the step ends first.
func (s *step) slot(ctx context.Context) bool {
	for {
		s.mu.Lock()
		ok := s.inFlight < s.limit()
		if ok {
			s.inFlight++
		}
		s.mu.Unlock()
		if ok {
			s.wake() // another slot may be free
			return ctx.Err() == nil
		}
		t := time.NewTimer(recheck)
		select {
		case <-s.freed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// free gives a slot back.
func (s *step) free() {
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	s.wake()
}

// wake makes a worker that waits for a slot check again.
func (s *step) wake() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// limit returns the number of groups that the fleet may have at once, at least 1.
func (s *step) limit() int {
	if s.cfg.InFlight > 0 {
		return s.cfg.InFlight
	}
	return max(1, s.deps.Fleet.TargetInFlight(s.cfg.GroupSize))
}
