package loss

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests follow section 3 of Lu 2025, "Periodic Asynchrony: An Effective
// Method for Accelerating On-Policy Reinforcement Learning". A response there
// has one probability; here each of its tokens has one, and a response of one
// token is the paper's case.

// "Consider the objective function of GRPO for generating responses from a
// single prompt: J_GRPO(θ) = 1/G Σ (L_i(π_θ‖π_old, A_i) - β D_KL^i(π_θ‖π_ref))"
// (eq. 4), with L_i = min(π_θ/π_old A_i, clip(π_θ/π_old, 1-ε, 1+ε) A_i) (eq. 5)
// and D_KL^i = π_ref/π_θ - log π_ref/π_θ - 1 (eq. 6).
func TestPaperObjective(t *testing.T) {
	t.Parallel()
	const epsilon, beta = 0.2, 0.04
	policy := []float64{0.5, 0.02, 0.3, 0.9}
	old := []float64{0.3, 0.025, 0.5, 0.88}
	reference := []float64{0.4, 0.03, 0.35, 0.7}
	advantage := []float64{1.5, -0.5, -0.25, 0.75}

	objective, v := 0.0, Vars{}
	for i := range policy {
		ratio := policy[i] / old[i]
		l := math.Min(ratio*advantage[i], math.Max(math.Min(ratio, 1+epsilon), 1-epsilon)*advantage[i])
		d := reference[i]/policy[i] - math.Log(reference[i]/policy[i]) - 1
		objective += (l - beta*d) / float64(len(policy))

		v.Policy = append(v.Policy, float32(math.Log(policy[i])))
		v.Old = append(v.Old, float32(math.Log(old[i])))
		v.Reference = append(v.Reference, float32(math.Log(reference[i])))
		v.Advantage = append(v.Advantage, float32(advantage[i]))
		v.Weight = append(v.Weight, SequenceMean.Weight(1))
	}
	o := objectiveOf(t, func(c *Config) { c.EpsilonLow, c.EpsilonHigh, c.Beta = epsilon, epsilon, beta })
	got, err := o.Eval(v)
	require.NoError(t, err)
	require.InDelta(t, objective, -got.Loss.Float64()/SequenceMean.Denominator(len(policy), len(policy), 0), 1e-6)
}

// "For micro-batch training, the update proceeds differently. First, the
// accumulated gradient is initialized. Then, for each micro-batch j = 1 to M,
// the gradient is updated" (eq. 2). "This formulation demonstrates that,
// mathematically, full-batch training and micro-batch training are equivalent"
// (eq. 3), and "the batch can be trained using micro-batches" (eq. 9) of m of
// the NG responses of N prompts (eq. 7 and 8).
func TestPaperMicroBatchesEqualFullBatch(t *testing.T) {
	t.Parallel()
	const n, g = 6, 4 // prompts, responses to each
	for _, aggregation := range []Aggregation{SequenceMean, TokenMean, Constant} {
		for _, beta := range []float64{0, 0.04} {
			o := objectiveOf(t, func(c *Config) { c.Beta, c.Aggregation = beta, aggregation })
			starts := []int{0}
			for i := range n * g {
				starts = append(starts, starts[i]+1+(i*7)%11)
			}
			tokens := starts[n*g]
			v := randomVars(tokens, 21)
			for i := range n * g {
				for j := starts[i]; j < starts[i+1]; j++ {
					v.Weight[j] = aggregation.Weight(starts[i+1] - starts[i])
				}
			}
			full, err := o.Eval(v)
			require.NoError(t, err)
			for _, m := range []int{1, 2, 3, 4, 8, 24} {
				var grad []float32
				var sum Result
				for i := 0; i < n*g; i += m {
					lo, hi := starts[i], starts[i+m]
					micro, err := o.Eval(Vars{Policy: v.Policy[lo:hi], Old: v.Old[lo:hi], Reference: v.Reference[lo:hi],
						Advantage: v.Advantage[lo:hi], Weight: v.Weight[lo:hi]})
					require.NoError(t, err)
					grad = append(grad, micro.Grad...)
					sum.Loss.Merge(&micro.Loss)
					sum.KL.Merge(&micro.KL)
					sum.Ratio.Merge(&micro.Ratio)
					sum.Clipped += micro.Clipped
				}
				require.Equal(t, full.Grad, grad, "the same bits for micro-batches of %d", m)
				require.Equal(t, full.Loss.Float64(), sum.Loss.Float64())
				require.Equal(t, full.KL.Float64(), sum.KL.Float64())
				require.Equal(t, full.Ratio.Float64(), sum.Ratio.Float64())
				require.Equal(t, full.Clipped, sum.Clipped)
			}
		}
	}
}
