package sharded

import (
	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference/canary"
	"github.com/easyrl/easyrl/inference/remote/publish"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Canary returns the log-probabilities that the ranks compute for each version, with which servers are verified.
// It is nil without Config.Canary.
func (m *Models) Canary() *canary.Recorded { return m.canary }

// recordPerturbed makes the ranks compute log-probabilities under perturbed weights and initializes
// m.canary with them. It overwrites the policy, so it runs before the ranks get the starting weights.
func (m *Models) recordPerturbed(w *world) error {
	p, err := canary.Perturbed(m.shape, w.scatter(trimodel.Tensors{Role: backend.Policy}))
	if err != nil {
		return err
	}
	prompt := canary.Prompt(m.shape, nil, publish.CanaryTokens)
	logp, err := w.logprobs(prompt, 0)
	perturbed := &publish.Perturbed{Weights: p, Prompt: prompt, Logprobs: logp, Free: func() {}}
	m.canary = canary.NewRecorded(m.cfg.Canary, perturbed)
	return err
}

// recordVersion makes the ranks compute the log-probabilities of the canary's prompt under the version
// that they hold, and records them.
func (m *Models) recordVersion(w *world, version int64) error {
	logp, err := w.logprobs(m.cfg.Canary, version)
	if err == nil {
		m.canary.Set(version, logp)
	}
	return err
}

// logprobs returns the log-probabilities of ids under a version, 0 for the policy, at temperature 1. Entry 0 is
// 0, because the first token has none.
func (w *world) logprobs(ids []int32, version int64) ([]float32, error) {
	var l attention.Layout
	l.Add(-1, ids, true)
	logp, err := w.score(&l, version, 1)
	return append([]float32{0}, logp...), err
}
