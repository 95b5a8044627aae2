// Package sample samples and scores groups of responses, for training and evaluation.
package sample

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sourcegraph/conc"
	"github.com/sourcegraph/conc/panics"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Generator samples responses.
type Generator interface {
	// Generate returns the completions and the instance that sampled them. It retries on
	// other instances itself, so an error is final.
	Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error)
}

// Sampler samples and scores groups. Its methods may be called concurrently.
type Sampler struct {
	Fleet  Generator
	Reward reward.Func
	// Text decodes a response for the reward and the record, without stop and other special
	// tokens. If nil, the instance's text is used.
	Text func(ids []int32) string
	// AtOnce is the number of responses of a group that are scored at once, at
	// least 1.
	AtOnce int
}

// Sample returns the group of req.N responses to prompt, without rewards. If req demands a
// version, a response of another one is an error that wraps inference.ErrStale.
func (s *Sampler) Sample(ctx context.Context, prompt *rollout.Prompt, req inference.Request) (*rollout.Group, error) {
	req.PromptIDs = prompt.IDs
	out, instance, err := s.Fleet.Generate(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(out) != req.N {
		return nil, fmt.Errorf("%s returned %d responses, expected %d", instance, len(out), req.N)
	}
	g := &rollout.Group{Version: req.Version, Seed: req.Seed, Prompt: *prompt, Responses: make([]rollout.Response, len(out))}
	for i, c := range out {
		if req.Version != 0 && c.Version != req.Version {
			return nil, fmt.Errorf("%w: %s returned a response of version %d, expected %d", inference.ErrStale, instance, c.Version, req.Version)
		}
		text := c.Text
		if s.Text != nil {
			text = s.Text(c.IDs)
		}
		g.Responses[i] = rollout.Response{Text: text, IDs: c.IDs, Logprobs: c.Logprobs, Finish: c.Finish, Version: c.Version, Instance: instance}
	}
	return g, nil
}

// Score sets the reward of each response of g. If scores is not nil, it sets its item for
// each response too. After a failure no more scoring begins. Each scoring goroutine starts
// the next one before its first score, so with instant rewards the later ones find nothing
// to do.
func (s *Sampler) Score(ctx context.Context, g *rollout.Group, scores []reward.Score) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var others conc.WaitGroup
	var begun, scorers atomic.Int64
	n := int64(len(g.Responses))
	var scorer func()
	scorer = func() {
		last := scorers.Add(1) == int64(s.AtOnce)
		for i := begun.Add(1) - 1; i < n && ctx.Err() == nil; i = begun.Add(1) - 1 {
			if !last && i+1 < n {
				others.Go(scorer)
				last = true
			}
			resp := &g.Responses[i]
			score, err := Score(ctx, s.Reward, reward.Input{Prompt: &g.Prompt, Text: resp.Text, Finish: resp.Finish, Length: len(resp.IDs)})
			if err != nil {
				cancel(fmt.Errorf("reward of response %d: %w", i, err))
				continue
			}
			resp.Reward, resp.Parts = score.Value, score.Parts
			if scores != nil {
				scores[i] = score
			}
		}
	}
	scorer()
	others.Wait()
	return context.Cause(ctx)
}

// Score calls the reward for one response. The reward handles deadlines and retries,
// because only it knows when scoring begins. A panic or a score that fails its Check is an
// error.
func Score(ctx context.Context, f reward.Func, in reward.Input) (score reward.Score, err error) {
	defer func() { // panics.Try would allocate for each response
		if p := recover(); p != nil {
			r := panics.NewRecovered(1, p)
			err = r.AsError()
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	score, err = f.Score(ctx, in)
	if err == nil {
		err = score.Check()
	}
	return score, err
}
