package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// reference is algorithm 2 of Loshchilov and Hutter 2019 in float64.
type reference struct{ w, m, v []float64 }

func (r *reference) update(cfg Config, g []float32, decay bool, scale, lr float64, step int) {
	for i := range r.w {
		grad := float64(g[i]) * scale
		r.m[i] = Beta1*r.m[i] + (1-Beta1)*grad
		r.v[i] = cfg.Beta2*r.v[i] + (1-cfg.Beta2)*grad*grad
		m := r.m[i] / (1 - math.Pow(Beta1, float64(step)))
		v := r.v[i] / (1 - math.Pow(cfg.Beta2, float64(step)))
		pull := 0.0
		if decay {
			pull = cfg.WeightDecay * r.w[i]
		}
		r.w[i] -= lr * (m/(math.Sqrt(v)+Eps) + pull)
	}
}

func allocate(t *testing.T, dev npu.Device, name string, n int, decay bool) Param {
	t.Helper()
	p := Param{Name: name, Update: npu.Update{Decay: decay}}
	for _, b := range []struct {
		buffer  *npu.Buffer
		purpose npu.Purpose
	}{{&p.W, npu.Weights}, {&p.M, npu.Optimizer}, {&p.V, npu.Optimizer}} {
		var err error
		*b.buffer, err = dev.Alloc(npu.Float32, n, b.purpose)
		require.NoError(t, err)
	}
	sums, err := dev.Alloc(npu.Int64, n+1, npu.Gradients)
	require.NoError(t, err)
	dev.Zero(sums)
	dev.Zero(p.M)
	dev.Zero(p.V)
	p.G = npu.NewSums(sums)
	return p
}

func devices(t *testing.T, test func(t *testing.T, dev npu.Device)) {
	t.Helper()
	for _, row := range []struct {
		name    string
		open    func(npu.Numerics, int) (npu.Device, error)
		threads int
	}{{"cpu", cpu.Open, 1}, {"cpu", cpu.Open, 3}, {"go", cpu.OpenPureGo, 1}} {
		t.Run(fmt.Sprintf("%s/%d", row.name, row.threads), func(t *testing.T) {
			t.Parallel()
			dev, err := row.open(npu.FP32, row.threads)
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			test(t, dev)
		})
	}
}

func TestAdamWAgainstFloat64(t *testing.T) {
	t.Parallel()
	devices(t, func(t *testing.T, dev npu.Device) {
		// float32 represents these hyper-parameters exactly, so that only rounding differs.
		cfg := Config{
			LR: 0.0078125, Schedule: Cosine, Warmup: 5, MinLR: 0.25,
			Beta2: 0.984375, WeightDecay: 0.0625, ClipGrad: 0.5,
		}
		const steps, denominator = 60, 37.0
		adam, err := NewAdamW(cfg)
		require.NoError(t, err)
		schedule := NewSchedule(cfg)
		rng := rand.New(rand.NewPCG(3, 4))
		var params []Param
		var want []*reference
		for i, n := range []int{1, 3, 16, 33, 4097} {
			params = append(params, allocate(t, dev, fmt.Sprint("p", i), n, i%2 == 0))
			r := &reference{make([]float64, n), make([]float64, n), make([]float64, n)}
			w := make([]float32, n)
			for j := range w {
				w[j] = float32(rng.NormFloat64())
				r.w[j] = float64(w[j])
			}
			dev.Upload(params[i].W, w)
			want = append(want, r)
		}
		for step := 1; step <= steps; step++ {
			squares := 0.0
			gradients := make([][]float32, len(params))
			for i, p := range params {
				gradients[i] = make([]float32, p.W.Len())
				for j := range gradients[i] {
					if rng.IntN(4) > 0 {
						gradients[i][j] = float32(rng.NormFloat64() * float64(step%3))
					}
					// as summed
					gradients[i][j] = float32(math.RoundToEven(float64(gradients[i][j])*(1<<20)) / (1 << 20))
					squares += float64(gradients[i][j]) * float64(gradients[i][j])
				}
				setSums(p.G, gradients[i])
			}
			norm, err := GradNorm(dev, params, format())
			require.NoError(t, err)
			require.InEpsilon(t, 1+math.Sqrt(squares), 1+norm, 1e-6)
			scale := ClipScale(math.Sqrt(squares)/denominator, cfg.ClipGrad) / denominator
			lr := schedule.LR(step, steps)
			require.NoError(t, adam.Step(dev, params, scale/float64(format().Scale), lr))
			for i := range params {
				want[i].update(cfg, gradients[i], params[i].Decay, scale, lr, step)
			}
		}
		for i, p := range params {
			got := make([]float32, p.W.Len())
			dev.Download(got, p.W)
			require.NoError(t, dev.Sync())
			for j := range got {
				require.InDelta(t, want[i].w[j], got[j], 3e-6*(1+math.Abs(want[i].w[j])), "%s[%d]", p.Name, j)
			}
		}
	})
}

// If gradients are zero from the first step, only weight decay changes the weights.
func TestAdamWOfZeroGradients(t *testing.T) {
	t.Parallel()
	devices(t, func(t *testing.T, dev npu.Device) {
		adam, err := NewAdamW(Config{LR: 0.5, Schedule: Constant, Beta2: 0.99, WeightDecay: 0.5})
		require.NoError(t, err)
		params := []Param{allocate(t, dev, "matrix", 2, true), allocate(t, dev, "norm", 2, false)}
		for _, p := range params {
			dev.Upload(p.W, []float32{4, -8})
		}
		require.NoError(t, adam.Step(dev, params, 1, 0.5))
		got := make([]float32, 2)
		dev.Download(got, params[0].W)
		require.Equal(t, []float32{3, -6}, got)
		dev.Download(got, params[1].W)
		require.Equal(t, []float32{4, -8}, got)
	})
}

func TestGradNormOnDevice(t *testing.T) {
	t.Parallel()
	devices(t, func(t *testing.T, dev npu.Device) {
		params := []Param{allocate(t, dev, "embed_tokens.weight", 5000, true),
			allocate(t, dev, "norm.weight", 7, false)}
		g := make([]float32, 5000)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32} {
			g[4999] = bad
			setSums(params[0].G, g)
			_, err := GradNorm(dev, params, format())
			require.ErrorIs(t, err, ErrNonFinite)
			require.ErrorContains(t, err, "gradient of embed_tokens.weight")
		}
		g[4999] = 3
		setSums(params[0].G, g)
		setSums(params[1].G, []float32{0, 0, 4, 0, 0, 0, 0})
		norm, err := GradNorm(dev, params, format())
		require.NoError(t, err)
		require.Equal(t, 5.0, norm)
	})
}
