package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/rollout/sample"
)

// task samples, scores and queues the group of prompt index. If the group has no signal, task
// first replaces the prompt, up to Config.DynamicSampling times. It returns an error only if the
// step cannot continue.
func (s *step) task(ctx context.Context, index int) error {
	prompt := &s.batch.Prompts[index]
	var group *sample.Group
	var err error
	lost := false              // see failure.lost
	var before []rollout.Group // groups without a signal that group replaces
	for attempt := 0; ; attempt++ {
		if attempt > 0 && !s.slot(ctx) { // dispatch took the slot of the first attempt
			return context.Cause(ctx)
		}
		group, err = s.sample(ctx, index, attempt, prompt)
		s.free() // so that a slow reward leaves no instance idle
		lost = err != nil && !errors.Is(err, inference.ErrInvalid)
		if err == nil {
			err = s.score(group)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || attempt == s.cfg.DynamicSampling || s.hasSignal(group.Group) {
			break
		}
		replacement := s.spare(&s.batch, index, attempt+1)
		prompt = &replacement
		group.Replaced = true
		before = append(before, *group.Group)
	}
	if err == nil {
		group.Before = before
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deliver(index, group.Group)
		return nil
	}
	err = fmt.Errorf("prompt %s: %w", prompt.ID, err)
	if errors.Is(err, inference.ErrStale) || errors.Is(err, inference.ErrClosed) {
		return err // no prompt of this step can be sampled any more
	}
	return s.fail(failure{index: index, prompt: *prompt, lost: lost, err: err})
}

// hasSignal reports whether a group's rewards may give a gradient.
func (s *step) hasSignal(g *rollout.Group) bool {
	rewards := make([]float64, len(g.Responses))
	for i := range rewards {
		rewards[i] = g.Responses[i].Reward
	}
	return s.deps.Signal(rewards)
}

// sample samples the group of prompt, which is at index of the batch, and starts to score it.
// attempt is the number of prompts that had the index before.
func (s *step) sample(ctx context.Context, index, attempt int, prompt *rollout.Prompt) (*sample.Group, error) {
	b := &s.batch
	seed := seedOf(s.cfg.Seed, b.Number, index+attempt*len(b.Prompts))
	start := time.Now()
	g, err := s.sampler.Sample(ctx, prompt,
		inference.Request{N: s.cfg.GroupSize, Seed: seed, Sampling: s.cfg.Sampling, Version: b.Version})
	s.deps.Lanes.Add(b.Number, "prompt", start, time.Since(start),
		trace.Note{Prompt: prompt.ID, Flows: []uint64{seed}, Opens: true})
	if err != nil {
		return nil, err
	}
	g.Batch, g.Index, g.Prompts = b.Number, index, len(b.Prompts)
	return g, nil
}

// score waits for the reward of each response of g. Scoring began during sampling; the span in the
// trace covers only what is left of it.
func (s *step) score(g *sample.Group) error {
	span := s.deps.Lanes.Begin(g.Batch, "score")
	err := g.Score(nil)
	span.EndWith(trace.Note{Flows: []uint64{g.Seed}})
	g.Scored = time.Now()
	return err
}

// fail records a prompt without a group. It returns an error that wraps ErrBudget if too many have
// failed.
func (s *step) fail(f failure) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, f)
	lost, total := 0, len(s.batch.Prompts)
	for i := range s.failed {
		if s.failed[i].lost {
			lost++
		}
	}
	faulty := len(s.failed) - lost
	switch {
	case lost > s.cfg.MaxLost:
		return fmt.Errorf("%w: sampling failed for %d of %d, more than the %d allowed: %w", ErrBudget, lost, total,
			s.cfg.MaxLost, f.err)
	case faulty > s.cfg.MaxFailed:
		return fmt.Errorf("%w: prompt or reward failed for %d of %d, more than the %d allowed: %w", ErrBudget, faulty,
			total, s.cfg.MaxFailed, f.err)
	case lost+faulty == total:
		return fmt.Errorf("%w: all %d: %w", ErrBudget, total, f.err)
	}
	s.deliver(f.index, nil)
	return nil
}

// deliver records the group of prompt index, or nil if the prompt failed, and queues the groups
// that can be delivered as a result. The caller holds s.mu.
func (s *step) deliver(index int, g *rollout.Group) {
	for _, ready := range s.delivery.add(index, g) {
		s.groups <- *ready // never blocks; see step.groups
	}
}
