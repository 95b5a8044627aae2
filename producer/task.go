package producer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// recheck is how often a dispatcher without a free slot asks for the fleet's
// room again, should no group end meanwhile.
const recheck = time.Second

// run is a period under way.
type run struct {
	*Producer
	period  *Period
	cancel  context.CancelCauseFunc // ends the period with an error
	start   time.Time
	results chan result   // one a prompt, never full
	freed   chan struct{} // holds a token where a slot may have become free

	mu       sync.Mutex
	inFlight int
	lost     int // of sum.Failed
	sum      Summary
}

// result is the end of a task; group is nil where it failed.
type result struct {
	index int
	group *rollout.Group
}

// dispatch runs the tasks, in the order of the prompts as slots become free, and
// ends when they have. Who has one to run first starts the goroutine that waits
// for the next slot, unless one is about to: there are only as many as wait.
func (r *run) dispatch(ctx context.Context) {
	var workers conc.WaitGroup
	var front sync.Mutex // of the one that waits for a slot; guards next
	var spare atomic.Bool
	next := 0
	var work func()
	work = func() {
		spare.Store(false)
		for front.TryLock() {
			index := next
			found := index < len(r.period.Prompts) && r.slot(ctx)
			if found {
				next++
			}
			front.Unlock()
			if !found {
				return
			}
			if spare.CompareAndSwap(false, true) {
				workers.Go(work)
			}
			if err := try(func() error { return r.task(ctx, index) }); err != nil {
				r.cancel(err)
			}
		}
	}
	work()
	workers.Wait()
}

// slot takes a slot, and reports false where the period ends first.
func (r *run) slot(ctx context.Context) bool {
	for {
		r.mu.Lock()
		ok := r.inFlight < r.limit()
		if ok {
			r.inFlight++
		}
		r.mu.Unlock()
		if ok {
			r.wake() // there may be another
			return ctx.Err() == nil
		}
		t := time.NewTimer(recheck)
		select {
		case <-r.freed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

func (r *run) free() {
	r.mu.Lock()
	r.inFlight--
	r.mu.Unlock()
	r.wake()
}

// wake lets one that waits for a slot look again.
func (r *run) wake() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// limit is the number of groups that may be with the fleet, at least 1.
func (r *run) limit() int {
	if r.cfg.InFlight > 0 {
		return r.cfg.InFlight
	}
	return max(1, r.fleet.Room(r.period.GroupSize))
}

// task samples, scores and queues one group. It returns an error only where the
// period cannot go on.
func (r *run) task(ctx context.Context, index int) error {
	prompt := &r.period.Prompts[index]
	var group *rollout.Group
	var err error
	lost := false
	for attempt := 0; ; attempt++ {
		if attempt > 0 && !r.slot(ctx) {
			return context.Cause(ctx)
		}
		group, err = r.sample(ctx, index, attempt, prompt)
		r.free() // a slow reward keeps no instance waiting
		lost = err != nil && !errors.Is(err, inference.ErrInvalid)
		if err == nil {
			err = r.score(ctx, group)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || attempt == r.cfg.Refill || !noSignal(group) {
			break
		}
		another := r.period.Another(index, attempt+1)
		prompt = &another
		r.mu.Lock()
		group.Replaced = true
		r.sum.Replaced = append(r.sum.Replaced, *group)
		r.mu.Unlock()
	}
	if err == nil {
		r.finished(group)
		return nil
	}
	err = fmt.Errorf("prompt %s: %w", prompt.ID, err)
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
		return err // no prompt of this period can be sampled any more
	}
	return r.failed(Failed{Index: index, Prompt: *prompt, Lost: lost, Err: err})
}

// noSignal reports that all responses have the same reward.
func noSignal(g *rollout.Group) bool {
	rewards := make([]float64, len(g.Responses))
	for i := range rewards {
		rewards[i] = g.Responses[i].Reward
	}
	return loss.Equal(rewards)
}

// sample is the group of a prompt at an index, without rewards; attempt counts
// the prompts that stood there before.
func (r *run) sample(ctx context.Context, index, attempt int, prompt *rollout.Prompt) (*rollout.Group, error) {
	p := r.period
	seed := Seed(p.Seed, p.Step, index+attempt*len(p.Prompts))
	start := time.Now()
	out, instance, err := r.fleet.Generate(ctx, inference.Request{
		PromptIDs: prompt.IDs, N: p.GroupSize, Seed: seed, Sampling: p.Sampling, Version: p.Version,
	})
	took := time.Since(start)
	r.add(&r.sum.Generating, took)
	r.cfg.Lanes.Add(p.Step, "prompt", start, took, trace.Note{Prompt: prompt.ID, Flows: []uint64{seed}, Opens: true})
	if err != nil {
		return nil, err
	}
	if len(out) != p.GroupSize {
		return nil, fmt.Errorf("%s gave %d responses, expected %d", instance, len(out), p.GroupSize)
	}
	g := &rollout.Group{Step: p.Step, Index: index, Version: p.Version, Seed: seed, Prompt: *prompt, Responses: make([]rollout.Response, len(out))}
	for i, c := range out {
		if c.Version != p.Version {
			return nil, fmt.Errorf("%w: %s gave a response of version %d, expected %d", inference.ErrStale, instance, c.Version, p.Version)
		}
		text := c.Text
		if r.decode != nil {
			text = r.decode(c.IDs)
		}
		g.Responses[i] = rollout.Response{Text: text, IDs: c.IDs, Logprobs: c.Logprobs, Finish: c.Finish, Version: c.Version, Instance: instance}
	}
	return g, nil
}

// score gives each response of g its reward, in as many goroutines as may score
// at once. Each starts the next one when it begins: where scores take no time,
// there is nothing left for that one to do.
func (r *run) score(ctx context.Context, g *rollout.Group) error {
	span := r.cfg.Lanes.Begin(g.Step, "score")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var others conc.WaitGroup
	var begun, scorers atomic.Int64
	n := int64(len(g.Responses))
	var scorer func()
	scorer = func() {
		last := scorers.Add(1) == int64(r.cfg.Scoring)
		for i := begun.Add(1) - 1; i < n && ctx.Err() == nil; i = begun.Add(1) - 1 {
			if !last && i+1 < n {
				others.Go(scorer)
				last = true
			}
			if err := r.scoreOne(ctx, &g.Prompt, &g.Responses[i]); err != nil {
				cancel(fmt.Errorf("reward of response %d: %w", i, err))
			}
		}
	}
	scorer()
	others.Wait()
	span.EndWith(trace.Note{Flows: []uint64{g.Seed}})
	g.Scored = time.Now()
	return context.Cause(ctx)
}

// scoreOne gives one response its reward. How long that may take and whether a
// failure may pass is the reward's to say: only it knows when scoring begins. One
// that panics or is not a finite number has failed.
func (r *run) scoreOne(ctx context.Context, prompt *rollout.Prompt, resp *rollout.Response) error {
	start := time.Now()
	var score reward.Score
	err := try(func() (err error) {
		score, err = r.reward.Score(ctx, reward.Input{Prompt: prompt, Text: resp.Text, Finish: resp.Finish, Length: len(resp.IDs)})
		return err
	})
	r.add(&r.sum.Scoring, time.Since(start))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case math.IsNaN(score.Value) || math.IsInf(score.Value, 0):
		return fmt.Errorf("reward is %v, expected a finite number", score.Value)
	}
	resp.Reward, resp.Parts = score.Value, score.Parts
	return nil
}

// try is what do returns, or its panic as an error.
func try(do func() error) (err error) {
	if p := panics.Try(func() { err = do() }); p != nil {
		return p.AsError()
	}
	return err
}

func (r *run) add(sum *time.Duration, d time.Duration) {
	r.mu.Lock()
	*sum += d
	r.mu.Unlock()
}

// finished queues a group.
func (r *run) finished(g *rollout.Group) {
	r.mu.Lock()
	r.sum.PromptTokens += int64(len(g.Prompt.IDs))
	for i := range g.Responses {
		r.sum.ResponseTokens += int64(len(g.Responses[i].IDs))
	}
	r.sum.ByInstance[g.Responses[0].Instance]++
	r.sum.Sampled = time.Since(r.start)
	r.mu.Unlock()
	r.results <- result{g.Index, g}
}

// failed records a prompt that gives no group, and is an error where that is
// one too many.
func (r *run) failed(f Failed) error {
	r.mu.Lock()
	r.sum.Failed = append(r.sum.Failed, f)
	if f.Lost {
		r.lost++
	}
	lost, faulty, total := r.lost, len(r.sum.Failed)-r.lost, len(r.period.Prompts)
	r.mu.Unlock()
	switch {
	case lost > r.cfg.MaxLost:
		return fmt.Errorf("%w: %d of %d could not be sampled, at most %d may: %w", ErrBudget, lost, total, r.cfg.MaxLost, f.Err)
	case faulty > r.cfg.MaxFailed:
		return fmt.Errorf("%w: %d of %d because of their prompt or reward, at most %d may: %w", ErrBudget, faulty, total, r.cfg.MaxFailed, f.Err)
	case lost+faulty == total:
		return fmt.Errorf("%w: all %d: %w", ErrBudget, total, f.Err)
	}
	r.results <- result{index: f.Index}
	return nil
}
