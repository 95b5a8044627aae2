package loss

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func objectiveOf(t testing.TB, change func(*Config)) *Objective {
	t.Helper()
	cfg := Default()
	if change != nil {
		change(&cfg)
	}
	o, err := New(cfg)
	require.NoError(t, err)
	return o
}

// random vectors on a grid of 2^-12, on which float32 sums with 2^-10 are exact.
func randomVars(n int, seed uint64) Vars {
	rng := rand.New(rand.NewPCG(seed, 1))
	grid := func(scale float64) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(math.Round(rng.NormFloat64()*scale*4096) / 4096)
		}
		return values
	}
	v := Vars{Policy: grid(0.3), Old: grid(0.2), Reference: grid(0.5), Advantage: grid(1), Weight: make([]float32, n)}
	for i := range v.Policy {
		v.Policy[i] -= 2
		v.Old[i] -= 2
		v.Reference[i] -= 2
		v.Weight[i] = 1 / float32(1+i%5)
	}
	return v
}

// expected is the loss and gradient of one token by cases, not by min and clip.
func expected(c Config, v Vars, i int) (loss, pg, grad float64) {
	p, a, w := float64(v.Policy[i]), float64(v.Advantage[i]), float64(v.Weight[i])
	r := math.Exp(p - float64(v.Old[i]))
	switch {
	case a > 0 && r > 1+c.EpsilonHigh:
		pg = -a * (1 + c.EpsilonHigh)
	case a < 0 && r < 1-c.EpsilonLow:
		pg = -a * (1 - c.EpsilonLow)
	default:
		pg, grad = -a*r, -a*r
	}
	loss = pg
	if c.Beta > 0 {
		x := p - float64(v.Reference[i])
		switch c.KL {
		case K2:
			loss, grad = loss+c.Beta*x*x/2, grad+c.Beta*x
		case K3:
			loss, grad = loss+c.Beta*(math.Expm1(-x)+x), grad-c.Beta*math.Expm1(-x)
		}
	}
	return w * loss, w * pg, w * grad
}

func TestEvalMatchesClosedForm(t *testing.T) {
	t.Parallel()
	for _, kl := range []string{K2, K3} {
		for _, beta := range []float64{0, 0.04, 2} {
			for _, n := range []int{1, 2, 3, 17, 1000} {
				o := objectiveOf(t, func(c *Config) { c.KL, c.Beta, c.EpsilonLow, c.EpsilonHigh = kl, beta, 0.2, 0.28 })
				v := randomVars(n, uint64(n))
				got, err := o.Eval(v)
				require.NoError(t, err)
				var loss, pg float64
				for i := range n {
					l, p, g := expected(o.cfg, v, i)
					loss, pg = loss+l, pg+p
					require.InDelta(t, g, got.Grad[i], 1e-7*(1+math.Abs(g)), "%s beta %v token %d", kl, beta, i)
				}
				require.InDelta(t, loss, got.Loss.Float64(), 1e-10*float64(n))
				require.InDelta(t, pg, got.PG.Float64(), 1e-10*float64(n))
				require.Equal(t, n, got.Tokens)
			}
		}
	}
}

func TestEvalMatchesCentralDifferences(t *testing.T) {
	t.Parallel()
	const h = 1.0 / 1024
	for _, kl := range []string{K2, K3} {
		o := objectiveOf(t, func(c *Config) { c.KL, c.Beta, c.EpsilonHigh = kl, 0.3, 0.28 })
		v := randomVars(41, 9)
		got, err := o.Eval(v)
		require.NoError(t, err)
		for i := range v.Policy {
			ratio := math.Exp(float64(v.Policy[i] - v.Old[i]))
			if math.Abs(ratio-1.28) < 4*h || math.Abs(ratio-0.8) < 4*h {
				continue // a corner of the clip
			}
			at := func(d float32) float64 {
				moved := v
				moved.Policy = append([]float32(nil), v.Policy...)
				moved.Policy[i] += d
				r, err := o.Eval(moved)
				require.NoError(t, err)
				return r.Loss.Float64()
			}
			require.InDelta(t, (at(h)-at(-h))/(2*h), got.Grad[i], 5e-6, "%s token %d", kl, i)
		}
	}
}

func TestEvalClipsByTheAdvantagesSign(t *testing.T) {
	t.Parallel()
	up, down := math.Exp(0.5), math.Exp(-0.5)
	for _, row := range []struct {
		name                string
		logRatio            float32
		advantage           float32
		loss, grad, clipped float64
	}{
		{"above, good", 0.5, 1, -1.2, 0, 1},
		{"above, bad", 0.5, -1, up, up, 0},
		{"below, good", -0.5, 1, -down, -down, 0},
		{"below, bad", -0.5, -1, 0.8, 0, 1},
		{"inside, good", 0.125, 2, -2 * math.Exp(0.125), -2 * math.Exp(0.125), 0},
		{"inside, bad", -0.125, -2, 2 * math.Exp(-0.125), 2 * math.Exp(-0.125), 0},
		{"no advantage", 0.5, 0, 0, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := objectiveOf(t, nil).Eval(Vars{
				Policy: []float32{-1 + row.logRatio}, Old: []float32{-1},
				Advantage: []float32{row.advantage}, Weight: []float32{1},
			})
			require.NoError(t, err)
			require.InDelta(t, row.loss, got.Loss.Float64(), 1e-12)
			require.InDelta(t, row.grad, got.Grad[0], 1e-7)
			require.EqualValues(t, row.clipped, got.Clipped)
			require.InDelta(t, math.Exp(float64(row.logRatio)), got.Ratio.Float64(), 1e-12)
			require.Equal(t, got.Ratio.Float64(), got.RatioMax)
		})
	}
}

// On-policy, the gradient of a token is that of REINFORCE to the last bit.
func TestEvalAtRatioOneIsExact(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	const n = 501
	v := Vars{Policy: make([]float32, n), Advantage: make([]float32, n), Weight: make([]float32, n)}
	for i := range n {
		v.Policy[i] = -float32(rng.ExpFloat64())
		v.Advantage[i] = float32(rng.NormFloat64())
		v.Weight[i] = 1 / float32(1+rng.IntN(60))
	}
	v.Old = v.Policy
	for _, reference := range [][]float32{nil, v.Policy} {
		o := objectiveOf(t, func(c *Config) {
			if reference != nil {
				c.Beta = 0.1
			}
		})
		v.Reference = reference
		got, err := o.Eval(v)
		require.NoError(t, err)
		for i := range n {
			require.Equal(t, -v.Advantage[i]*v.Weight[i], got.Grad[i], "token %d", i)
		}
		require.Equal(t, float64(n), got.Ratio.Float64())
		require.Zero(t, got.Clipped)
		require.Zero(t, got.KL.Float64())
	}
}

func TestEvalReportsKLWithoutOptimisingIt(t *testing.T) {
	t.Parallel()
	v := randomVars(33, 2)
	o := objectiveOf(t, nil)
	with, err := o.Eval(v)
	require.NoError(t, err)
	kl := 0.0
	for i := range v.Policy {
		d := float64(v.Reference[i]) - float64(v.Policy[i])
		kl += math.Expm1(d) - d
	}
	require.InDelta(t, kl, with.KL.Float64(), 1e-10)
	v.Reference = nil
	without, err := o.Eval(v)
	require.NoError(t, err)
	require.Zero(t, without.KL)
	require.Equal(t, with.Grad, without.Grad)
	require.Equal(t, with.Loss, without.Loss)
	require.Equal(t, with.Loss, with.PG)
}

// A token's gradient is the same bits in every call, whatever it shares it with.
func TestEvalIsRepeatableAndTokenwise(t *testing.T) {
	t.Parallel()
	o := objectiveOf(t, func(c *Config) { c.Beta = 0.04 })
	v := randomVars(103, 77)
	want, err := o.Eval(v)
	require.NoError(t, err)
	part := func(lo, hi int) Vars {
		return Vars{Policy: v.Policy[lo:hi], Old: v.Old[lo:hi], Reference: v.Reference[lo:hi],
			Advantage: v.Advantage[lo:hi], Weight: v.Weight[lo:hi]}
	}
	for round := range 30 {
		again, err := o.Eval(v)
		require.NoError(t, err)
		require.Equal(t, want, again)
		lo := round * 3
		split, err := o.Eval(part(lo, lo+1+round%9))
		require.NoError(t, err)
		require.Equal(t, want.Grad[lo:lo+1+round%9], split.Grad)
	}
}

func TestEvalIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	o := objectiveOf(t, func(c *Config) { c.Beta = 0.04 })
	v := randomVars(64, 3)
	want, err := o.Eval(v)
	require.NoError(t, err)
	var wg sync.WaitGroup
	got := make([]Result, 8)
	errs := make([]error, 8)
	for i := range got {
		wg.Go(func() { got[i], errs[i] = o.Eval(v) })
	}
	wg.Wait()
	for i := range got {
		require.NoError(t, errs[i])
		require.Equal(t, want, got[i])
	}
}

// A program that is reused gives the same bits as a new one.
func TestEvalReusesPrograms(t *testing.T) {
	t.Parallel()
	for _, kind := range papers() {
		for _, correction := range []string{NoCorrection, Truncate, Mask} {
			change := func(c *Config) { c.Kind, c.Beta, c.Correction, c.DualClip = kind, 0.04, correction, 3 }
			o := objectiveOf(t, change)
			for seed := range uint64(6) {
				v := randomResponses(3, seed+20)
				v.Policy[0] -= float32(seed) * 4 // far from the old one, at times
				want, err := objectiveOf(t, change).Eval(v)
				require.NoError(t, err, kind)
				got, err := o.Eval(v)
				require.NoError(t, err, kind)
				require.Equal(t, want, got, kind)
			}
			made := 0
			for _, idle := range o.programs.idle {
				require.Len(t, idle, 1)
				made++
			}
			require.Less(t, made, 6)
		}
	}
}

func TestEvalOfNothing(t *testing.T) {
	t.Parallel()
	got, err := objectiveOf(t, func(c *Config) { c.Beta = 1 }).Eval(Vars{})
	require.NoError(t, err)
	require.Equal(t, Result{Grad: []float32{}}, got)
}

func TestEvalRefuses(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, row := range []struct {
		name   string
		beta   float64
		change func(*Vars)
		want   string
	}{
		{"nan policy", 0, func(v *Vars) { v.Policy[2] = nan }, "policy of token 2 is NaN"},
		{"infinite old", 0, func(v *Vars) { v.Old[1] = -inf }, "old of token 1 is -Inf"},
		{"infinite advantage", 0, func(v *Vars) { v.Advantage[0] = inf }, "advantage of token 0 is +Inf"},
		{"nan weight", 0, func(v *Vars) { v.Weight[3] = nan }, "weight of token 3 is NaN"},
		{"nan reference", 1, func(v *Vars) { v.Reference[4] = nan }, "reference of token 4 is NaN"},
		{"short old", 0, func(v *Vars) { v.Old = v.Old[:4] }, "old has 4 tokens, expected 5"},
		{"no reference", 1, func(v *Vars) { v.Reference = nil },
			"beta is 1, but reference log-probabilities are missing"},
		{"ratio overflows", 0, func(v *Vars) { v.Policy[1], v.Old[1], v.Advantage[1] = 0, -800, -1 },
			"loss of token 1:"},
		{"gradient overflows", 0, func(v *Vars) { v.Policy[3], v.Old[3], v.Advantage[3] = 0, -100, -1 },
			"loss of token 3:"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			v := randomVars(5, 8)
			row.change(&v)
			_, err := objectiveOf(t, func(c *Config) { c.Beta = row.beta }).Eval(v)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func BenchmarkEval(b *testing.B) {
	for _, n := range []int{60, 4096, 32768} {
		for _, beta := range []float64{0, 0.04} {
			o := objectiveOf(b, func(c *Config) { c.Beta = beta })
			v := randomVars(n, 4)
			b.Run(map[bool]string{true: "kl", false: "plain"}[beta > 0]+"/"+strconv.Itoa(n), func(b *testing.B) {
				for b.Loop() {
					if _, err := o.Eval(v); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
