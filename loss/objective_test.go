package loss

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// papers are the kinds that published methods have; methods may list more.
func papers() []string { return []string{GRPO, GSPO, GSPOToken, CISPO, REINFORCE} }

// randomResponses are random vectors cut into responses with one advantage each.
func randomResponses(count int, seed uint64) Vars {
	rng := rand.New(rand.NewPCG(seed, 2))
	lengths, n := make([]int, count), 0
	for i := range lengths {
		lengths[i] = 1 + rng.IntN(40)
		n += lengths[i]
	}
	v := randomVars(n, seed)
	v.Lengths = lengths
	v.Advantage = perToken(lengths, func(i int) float32 { return float32(i%5) - 1.5 })
	v.Weight = perToken(lengths, func(i int) float32 { return SequenceMean.Weight(lengths[i]) })
	v.Recomputed = v.Old
	v.Behaviour = v.Reference
	return v
}

// Where all log-probabilities are those of one policy, the gradient of all of them
// is A·∇ log π, which is REINFORCE's.
func TestOnPolicyAllAreREINFORCE(t *testing.T) {
	t.Parallel()
	for _, kind := range papers() {
		v := randomResponses(20, 6)
		v.Old, v.Recomputed, v.Behaviour = v.Policy, v.Policy, v.Policy
		got, err := objectiveOf(t, func(c *Config) { c.Kind, c.DualClip, c.Correction = kind, 3, Truncate }).Eval(v)
		require.NoError(t, err)
		for i := range v.Policy {
			require.InEpsilon(t, -v.Advantage[i]*v.Weight[i], got.Grad[i], 1e-7, "%s, token %d", kind, i)
		}
		require.Zero(t, got.Clipped, kind)
		require.Zero(t, got.Corrected, kind)
		require.Equal(t, float64(len(v.Policy)), got.Ratio.Float64(), kind)
	}
}

// "∇ J_GSPO = E[1/G Σ s_i Â_i · 1/|y_i| Σ_t ∇ log π(y_i,t)]" (Zheng et al. 2025,
// eq. 10), and GSPO-token is "numerically identical" where all tokens of a
// response have one advantage (section 4.3).
func TestGSPOGradient(t *testing.T) {
	t.Parallel()
	v := randomResponses(30, 7)
	set := func(kind string) func(*Config) {
		return func(c *Config) { c.Kind, c.EpsilonLow, c.EpsilonHigh = kind, 0.05, 0.08 }
	}
	got, err := objectiveOf(t, set(GSPO)).Eval(v)
	require.NoError(t, err)
	at, clipped, loss := 0, 0, 0.0
	for i, n := range v.Lengths {
		s, a := 0.0, float64(v.Advantage[at])
		for j := at; j < at+n; j++ {
			s += float64(v.Policy[j]) - float64(v.Old[j])
		}
		s = math.Exp(s / float64(n))
		want := -s * a / float64(n)
		loss -= math.Min(s*a, math.Max(math.Min(s, 1.08), 0.95)*a)
		if a > 0 && s > 1.08 || a < 0 && s < 0.95 {
			want, clipped = 0, clipped+n
		}
		for j := at; j < at+n; j++ {
			require.InDelta(t, want, got.Grad[j], 1e-7, "response %d", i)
		}
		at += n
	}
	require.InDelta(t, loss, got.Loss.Float64(), 1e-6)
	require.EqualValues(t, clipped, got.Clipped)
	require.Positive(t, clipped)

	token, err := objectiveOf(t, set(GSPOToken)).Eval(v)
	require.NoError(t, err)
	require.InDelta(t, got.Loss.Float64(), token.Loss.Float64(), 1e-12)
	require.InDeltaSlice(t, got.Grad, token.Grad, 1e-7)
	require.Equal(t, got.Clipped, token.Clipped)
}

// CISPO's value and gradient by cases: no token loses its gradient.
func TestCISPOGradient(t *testing.T) {
	t.Parallel()
	v := randomVars(300, 3)
	got, err := objectiveOf(t, func(c *Config) { c.Kind, c.EpsilonLow, c.EpsilonHigh = CISPO, 0.2, 0.28 }).Eval(v)
	require.NoError(t, err)
	loss, clipped := 0.0, 0
	for i := range v.Policy {
		r := math.Exp(float64(v.Policy[i]) - float64(v.Old[i]))
		if r > 1.28 || r < 0.8 {
			clipped++
		}
		wa := math.Max(0.8, math.Min(1.28, r)) * float64(v.Advantage[i]) * float64(v.Weight[i])
		loss -= wa * float64(v.Policy[i])
		require.InDelta(t, -wa, got.Grad[i], 1e-7*(1+math.Abs(wa)), "token %d", i)
	}
	require.InDelta(t, loss, got.Loss.Float64(), 1e-9)
	require.EqualValues(t, clipped, got.Clipped)
}

func TestDualClip(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                string
		ratio, advantage    float64
		loss, grad, clipped float64
	}{
		{"bad, above c", 4, -1, 3, 0, 1},
		{"bad, below c", 2.5, -1, 2.5, 2.5, 0},
		{"bad, below the clip", 0.5, -1, 0.8, 0, 1},
		{"good, above c", 4, 1, -1.2, 0, 1},
		{"good, inside", 1.125, 2, -2.25, -2.25, 0},
		{"good, tiny", 1e-30, 1, -1e-30, -1e-30, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := objectiveOf(t, func(c *Config) { c.DualClip = 3 }).Eval(Vars{
				Policy: []float32{float32(math.Log(row.ratio))}, Old: []float32{0},
				Advantage: []float32{float32(row.advantage)}, Weight: []float32{1},
			})
			require.NoError(t, err)
			require.InDelta(t, row.loss, got.Loss.Float64(), 1e-6)
			require.InDelta(t, row.grad, got.Grad[0], 1e-6)
			require.EqualValues(t, row.clipped, got.Clipped)
		})
	}
}

// ρ is the trainer's probability over the instance's.
func TestCorrection(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, correction       string
		logRho                 float64
		weight, clip, tolerate float64
	}{
		{"exact, truncated", Truncate, 0, 1, 0, 0},
		{"exact, masked", Mask, 0, 1, 0, 0},
		{"inside, truncated", Truncate, 0.5, math.Exp(0.5), 0, 1e-6},
		{"inside, masked", Mask, -0.5, math.Exp(-0.5), 0, 1e-7},
		{"above, truncated", Truncate, 1, 2, 1, 1e-7},
		{"above, masked", Mask, 1, 0, 1, 0},
		{"below, truncated", Truncate, -3, math.Exp(-3), 0, 1e-7},
		{"below, masked", Mask, -3, 0, 1, 0},
		{"overflows, truncated", Truncate, 1000, 2, 1, 1e-7},
		{"overflows, masked", Mask, 1000, 0, 1, 0},
		{"underflows, truncated", Truncate, -1000, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := objectiveOf(t, func(c *Config) { c.Correction, c.Beta, c.KL = row.correction, 0.25, K2 }).Eval(
				Vars{
					Policy: []float32{-1}, Old: []float32{-1}, Reference: []float32{-1.5}, Advantage: []float32{2},
					Weight:     []float32{1},
					Recomputed: []float32{-1}, Behaviour: []float32{float32(-1 - row.logRho)},
				})
			require.NoError(t, err)
			require.InDelta(t, -2*row.weight, got.PG.Float64(), row.tolerate)
			require.InDelta(t, -2*row.weight+0.25*0.5, got.Grad[0], row.tolerate, "the divergence is not corrected")
			require.InDelta(t, got.PG.Float64()+0.25*0.5*0.5/2, got.Loss.Float64(), 1e-12)
			require.EqualValues(t, row.clip, got.Corrected)
		})
	}
}

// Instances that are exact to the bit make a correction change no bit.
func TestCorrectionOfExactInstances(t *testing.T) {
	t.Parallel()
	v := randomResponses(12, 4)
	v.Behaviour = v.Recomputed
	for _, kind := range kinds() {
		plain, err := objectiveOf(t, func(c *Config) { c.Kind, c.Beta = kind, 0.1 }).Eval(v)
		require.NoError(t, err)
		for _, correction := range []string{Truncate, Mask} {
			got, err := objectiveOf(t, func(c *Config) { c.Kind, c.Beta, c.Correction = kind, 0.1, correction }).Eval(v)
			require.NoError(t, err)
			require.Equal(t, plain, got, "%s, %s", kind, correction)
		}
	}
}

func TestEvalRefusesResponses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*Vars, *Config)
		want   string
	}{
		{"no lengths", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPO, nil },
			`lengths of 0 responses leave 5 of 5 tokens unassigned, expected 0 with kind "gspo"`},
		{"too few", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPOToken, []int{2, 2} },
			"lengths of 2 responses leave 1 of 5 tokens unassigned"},
		{"too many", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPO, []int{2, 4} },
			"length of response 1 is 4, expected 1 to 3, the tokens left"},
		{"overflowing", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPO, []int{2, math.MaxInt} },
			"length of response 1 is"},
		{"empty", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPO, []int{0, 5} }, "length of response 0 is 0"},
		{"negative", func(v *Vars, c *Config) { c.Kind, v.Lengths = GSPO, []int{6, -1} }, "length of response 0 is 6"},
		{"no behaviour", func(v *Vars, c *Config) { c.Correction, v.Behaviour = Mask, nil },
			`correction "mask" needs the sampler's log-probabilities and the trainer's recomputed ones`},
		{"no recomputed", func(v *Vars, c *Config) { c.Correction, v.Recomputed = Truncate, nil },
			"needs the sampler's log-probabilities"},
		{"short behaviour", func(v *Vars, c *Config) { c.Correction, v.Behaviour = Mask, v.Behaviour[:4] },
			"behaviour has 4 tokens, expected 5"},
		{"infinite behaviour", func(v *Vars, c *Config) {
			c.Correction, v.Behaviour = Truncate, []float32{0, float32(math.Inf(-1)), 0, 0, 0}
		}, "behaviour of token 1 is -Inf"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			v := randomVars(5, 8)
			v.Lengths, v.Recomputed, v.Behaviour = []int{2, 3}, v.Old, v.Old
			_, err := objectiveOf(t, func(c *Config) { row.change(&v, c) }).Eval(v)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// Any values give an error or finite results, never a panic.
func FuzzEval(f *testing.F) {
	f.Add(uint8(0), uint8(0), float32(-1), float32(-2), float32(1), 3)
	f.Add(uint8(1), uint8(1), float32(0), float32(-800), float32(-1), 2)
	f.Add(uint8(3), uint8(2), float32(-3e38), float32(3e38), float32(1e38), -1)
	f.Fuzz(func(t *testing.T, kind, correction uint8, policy, old, advantage float32, length int) {
		o := objectiveOf(t, func(c *Config) {
			c.Kind = kinds()[int(kind)%len(kinds())]
			c.Correction = []string{NoCorrection, Truncate, Mask}[correction%3]
			c.DualClip = float64(kind & 128)
		})
		got, err := o.Eval(Vars{
			Policy: []float32{policy, -1, old}, Old: []float32{old, -1, policy}, Advantage: []float32{advantage, 1, -1},
			Weight:  []float32{1, 0.5, 2},
			Lengths: []int{length, 3 - length}, Recomputed: []float32{policy, old, -1},
			Behaviour: []float32{old, -1, policy},
		})
		if err == nil {
			for _, g := range got.Grad {
				require.True(t, finite(float64(g)))
			}
			require.True(t, finite(got.Loss.Float64()))
		}
	})
}
