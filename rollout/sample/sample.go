// Package sample samples and scores groups of responses, for training and evaluation.
package sample

import (
	"context"
	"fmt"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Generator samples responses.
type Generator interface {
	// Generate returns the completions and the name of the instance that sampled them. It
	// retries on other instances, so an error is final.
	Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error)
}

// Sampler samples and scores groups. Its methods may be called concurrently; its fields must
// not change then.
type Sampler struct {
	Fleet  Generator
	Reward reward.Func
	// Text decodes a response for the reward and the record, without stop and other special
	// tokens. If nil, the instance's text is used.
	Text func(ids []int32) string
	// AtOnce is the maximum number of responses of a group that are scored at the same time,
	// at least 1.
	AtOnce int
}

// Group is a sampled group whose responses are being scored.
type Group struct {
	*rollout.Group
	scoring *scoring
}

// Sample returns the group of req.N responses to prompt. If the instance reports each response
// when it ends, scoring begins while others are being sampled. The caller must call
// Score on the group, which ends the scoring. If req demands a version, a response of another
// version is an error that wraps inference.ErrStale. ctx also bounds the scoring.
func (s *Sampler) Sample(ctx context.Context, prompt *rollout.Prompt, req inference.Request) (*Group, error) {
	req.PromptIDs = prompt.IDs
	scoring := newScoring(ctx, s, prompt, req.N)
	sampled := false
	defer func() {
		if !sampled {
			scoring.abandon()
		}
	}()
	if req.N > 1 {
		req.Ended = scoring.ended
	}
	out, instance, err := s.Fleet.Generate(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(out) != req.N {
		return nil, fmt.Errorf("%s returned %d responses, expected %d", instance, len(out), req.N)
	}
	for i := range out {
		if c := &out[i]; req.Version != 0 && c.Version != req.Version {
			return nil, fmt.Errorf("%w: %s returned a response of version %d, expected %d", inference.ErrStale,
				instance, c.Version, req.Version)
		}
	}
	g := &rollout.Group{Version: req.Version, Seed: req.Seed, Prompt: *prompt,
		Responses: make([]rollout.Response, len(out)), Reject: out[0].Reject}
	for i, a := range scoring.final(out) {
		g.Responses[i] = rollout.Response{Text: a.text, Spans: rollout.Sampled(a.IDs, a.Logprobs, a.Version),
			Finish: a.Finish, Instance: instance}
	}
	sampled = true
	return &Group{g, scoring}, nil
}

// Score waits until all responses of g are scored and sets their rewards. If scores is not
// nil, it must have an item for each response, which Score sets too. Score returns the first
// failure, or the cause of the context's end; after either, no more scoring begins.
func (g *Group) Score(scores []reward.Score) error {
	answers, err := g.scoring.wait()
	if err != nil {
		return err
	}
	for i, a := range answers {
		g.Responses[i].Reward, g.Responses[i].Parts = a.score.Value, a.score.Parts
		if scores != nil {
			scores[i] = a.score
		}
	}
	return nil
}

// text returns the text of a completion for the reward and the record.
func (s *Sampler) text(c *inference.Completion) string {
	if s.Text != nil {
		return s.Text(c.IDs)
	}
	return c.Text
}
