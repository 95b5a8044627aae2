package sharded

import (
	"context"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/parallel"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Canary verifies servers by log-probabilities that the ranks compute for each version. It is nil
// without Config.Canary.
func (m *Models) Canary() *canary.Recorded { return m.canary }

// recordPerturbed makes the ranks compute log-probabilities under perturbed weights and initializes
// m.canary with them. It overwrites the policy, so it runs before the ranks get the starting weights.
func (m *Models) recordPerturbed(ctx context.Context) error {
	p, err := canary.Perturbed(m.shape, m.scatter(ctx, trimodel.Tensors{Role: backend.Policy}))
	if err != nil {
		return err
	}
	prompt := canary.Prompt(m.shape, nil, publish.CanaryTokens)
	logp, err := m.logprobs(ctx, prompt, 0)
	perturbed := &publish.Perturbed{Weights: p, Prompt: prompt, Logprobs: logp, Free: func() {}}
	m.canary = canary.NewRecorded(m.cfg.Canary, perturbed)
	return err
}

// recordVersion makes the ranks compute the log-probabilities of the canary's prompt under the version
// that they hold, and records them.
func (m *Models) recordVersion(ctx context.Context, version int64) error {
	logp, err := m.logprobs(ctx, m.cfg.Canary, version)
	if err == nil {
		m.canary.Set(version, logp)
	}
	return err
}

// logprobs returns the log-probabilities of ids under a version, 0 for the policy, at temperature 1. Entry 0 is
// 0, because the first token has none.
func (m *Models) logprobs(ctx context.Context, ids []int32, version int64) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, ids, true)
	logp, err := m.score(ctx, &l, version, 1)
	return append([]float32{0}, logp...), err
}

// score computes a layout's log-probabilities under a version, 0 for the policy, on the first replica. No
// micro-batch may be in flight.
func (m *Models) score(
	ctx context.Context, l *attention.Layout, version int64, temperature float32,
) ([]float32, error) {
	c := command{Action: score, Layout: l, Version: version, Temperature: temperature}
	if err := m.send(ctx, m.replica(0), c); err != nil {
		return nil, err
	}
	last := m.ranks[m.cfg.Mesh.Rank(parallel.Coord{PP: m.cfg.Mesh.PP - 1})]
	a, err := m.answer(last, score)
	return a.Outputs.Values[backend.Policy], err
}
