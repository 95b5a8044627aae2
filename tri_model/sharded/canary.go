package sharded

import (
	"context"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/parallel"
)

// Canary verifies servers by log-probabilities that the ranks compute for each version. It is nil
// without Config.Canary.
func (c *crew) Canary() *canary.Recorded { return c.canary }

// perturb has the ranks compute log-probabilities under perturbed weights, before they get the
// starting weights.
func perturb(ctx context.Context, c *crew) error {
	p, err := canary.Perturbed(c.shape, c.give(ctx, policy))
	if err != nil {
		return err
	}
	prompt := canary.Prompt(c.shape, nil, publish.CanaryTokens)
	logp, err := c.logprobs(ctx, prompt, policy)
	c.canary = canary.NewRecorded(c.cfg.Canary, &publish.Perturbed{Weights: p, Prompt: prompt, Logprobs: logp, Free: func() {}})
	return err
}

// look computes the log-probabilities of the canary's prompt under the version that the ranks hold.
func look(ctx context.Context, c *crew, version int64) error {
	logp, err := c.logprobs(ctx, c.cfg.Canary, held)
	if err == nil {
		c.canary.Set(version, logp)
	}
	return err
}

// logprobs returns the log-probabilities of ids at temperature 1. Entry 0 is 0.
func (c *crew) logprobs(ctx context.Context, ids []int32, under which) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, ids, true)
	logp, err := c.score(ctx, &l, under, 1)
	return append([]float32{0}, logp...), err
}

// score computes a layout's log-probabilities on the first replica.
func (c *crew) score(ctx context.Context, l *attention.Layout, under which, temperature float32) ([]float32, error) {
	if err := c.tell(ctx, c.replica(0), command{Action: score, Layout: l, Which: under, Temperature: temperature}); err != nil {
		return nil, err
	}
	a, err := c.answer(c.ranks[c.cfg.Mesh.Rank(parallel.Coord{PP: c.cfg.Mesh.PP - 1})], score)
	return a.Logp.Policy, err
}
