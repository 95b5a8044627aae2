package trainer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/internal/reference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// byToken holds the sums behind a step's actor metrics, in float64.
type byToken struct {
	loss, pg, divisor       float64
	clipped, tokens         float64 // of all responses
	kl, entropy, passed     float64 // of those with a pass
	mismatch, mismatchWorst float64
	norms                   float64
}

// add adds a mini-batch, with each response as a separate sequence.
func (s *byToken) add(c *loss.Config, maxTokens int, groups []rollout.Group, policy, old, start *reference.Decoder) {
	for _, g := range groups {
		rewards := rewardsOf(&g)
		kept := loss.Keep(c.Keep, rewards)
		mean, deviation := 0.0, 0.0
		for _, r := range rewards {
			mean += r / float64(len(rewards))
		}
		for _, r := range rewards {
			deviation += (r - mean) * (r - mean) / float64(len(rewards)-1)
		}
		for j, r := range g.Responses {
			n := float64(len(r.Spans[0].IDs))
			s.tokens += n
			if !slices.Contains(kept, j) {
				continue
			}
			weight := 1.0
			switch c.Aggregation {
			case loss.TokenMean:
				s.divisor += n
			case loss.SequenceMean:
				s.divisor++
				weight = 1 / n
			case loss.Constant:
				s.divisor += float64(maxTokens)
			}
			a := (rewards[j] - mean) / (math.Sqrt(deviation) + 1e-4)
			if a == 0 && c.Beta == 0 {
				continue
			}
			var l attention.Layout
			l.AddResponse(l.Add(-1, g.Prompt.IDs, false), r.Spans[0].IDs)
			now, entropy := policy.Logprobs(&l, 1)
			before, _ := old.Logprobs(&l, 1)
			began, _ := start.Logprobs(&l, 1)
			for k := range now {
				ratio, d := math.Exp(now[k]-before[k]), began[k]-now[k]
				pg := -min(ratio*a, min(max(ratio, 1-c.EpsilonLow), 1+c.EpsilonHigh)*a)
				if a > 0 && ratio > 1+c.EpsilonHigh || a < 0 && ratio < 1-c.EpsilonLow {
					s.clipped++
				}
				s.pg += weight * pg
				s.loss += weight * pg
				if c.Beta > 0 {
					s.loss += weight * c.Beta * (math.Exp(d) - 1 - d)
					s.kl += math.Exp(d) - 1 - d
				}
				s.entropy += entropy[k]
				s.passed++
				m := before[k] - float64(r.Spans[0].Logprobs[k])
				s.mismatch += math.Exp(m) - 1 - m
				s.mismatchWorst = max(s.mismatchWorst, math.Abs(m))
			}
		}
	}
}

// norm returns the norm of the accumulated gradient.
func norm(m *trimodel.Models, scale float64) float64 {
	squares := 0.0
	for i := range m.Policy.Weights.Params {
		for _, g := range gradient(m, i) {
			squares += g * scale * g * scale
		}
	}
	return math.Sqrt(squares)
}

// A step of several updates reports each metric over all of them: a loss over the whole
// step's denominator, so that a mini-batch counts by its share; shares and means over tokens;
// the mean norm. Mini-batches here differ in tokens, and groups in length. The numbers agree
// with float64.
func TestMetricsCoverAllMiniBatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		aggregation loss.Aggregation
		beta        float64
		keep        int
	}{
		{"mean over tokens", loss.TokenMean, 0, 0},
		{"mean over tokens, with a reference", loss.TokenMean, 0.3, 0},
		{"mean over responses", loss.SequenceMean, 0, 0},
		{"constant length", loss.Constant, 0.3, 0},
		{"best and worst responses", loss.TokenMean, 0, 2},
	} {
		for _, updates := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s, %d updates", c.name, updates), func(t *testing.T) {
				t.Parallel()
				cfg := Rollouts{MaxTokens: 11, Loss: loss.Default()}
				cfg.Loss.Aggregation, cfg.Loss.Beta, cfg.Loss.Keep = c.aggregation, c.beta, c.keep
				cfg.Loss.EpsilonLow, cfg.Loss.EpsilonHigh = 0.02, 0.03
				m := tinyModels(t, 2, trimodel.Config{OldPolicy: loss.Behaviour, Reference: c.beta > 0, Temperature: 1})
				nudge(m.Policy.Weights, 5)
				_, err := m.Publish(t.Context(), 1)
				require.NoError(t, err)
				run := Config{MicroBatchTokens: 40, MiniBatches: updates, PromptsPerStep: 5, Steps: 9,
					Optim: optim.Default()}
				tr, err := New(run, State{}, Deps{Models: m, Warn: t.Logf}, cfg)
				require.NoError(t, err)
				tr.schedule.Peak = 1e-2
				r, s := sampled(tr), &step{number: 1}
				groups := tinyGroups(5, 4)
				old, start := decoder(m.Policy.Weights), decoder(m.Policy.Weights)
				if c.beta > 0 {
					start = decoder(m.Reference)
				}
				r.sampling = samplingOf(streamOf(groups...))
				var want byToken
				for mini := range updates {
					first, end := tr.miniBatchRange(mini)
					b, err := r.accumulate(t.Context(), s, first, end)
					require.NoError(t, err)
					want.add(&cfg.Loss, cfg.MaxTokens, groups[first:end], decoder(m.Policy.Weights), old, start)
					want.norms += norm(m, b.scale)
					require.NoError(t, tr.update(t.Context(), s, b))
				}
				got := report.Values{}
				s.metrics.into(got)
				require.InDelta(t, want.loss/want.divisor, got["actor/loss"], 2e-6)
				require.InDelta(t, want.pg/want.divisor, got["actor/pg_loss"], 2e-6)
				require.InDelta(t, want.clipped/want.tokens, got["actor/clip_frac"], 1e-12)
				require.InDelta(t, want.kl/want.passed, got["actor/kl"], 2e-6)
				require.InDelta(t, want.entropy/want.passed, got["actor/entropy"], 2e-6)
				require.InDelta(t, want.mismatchWorst, got["mismatch/logprob_abs_max"], 2e-5)
				require.InEpsilon(t, want.mismatch/want.passed, got["mismatch/kl"], 1e-4)
				require.InEpsilon(t, want.norms/float64(updates), got["actor/grad_norm"], 1e-6)
				require.Equal(t, updates > 1, want.clipped > 0, "only a later mini-batch clips")
			})
		}
	}
}
