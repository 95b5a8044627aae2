package cpu_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// BenchmarkBF16 measures kernels of BF16 on M rows of 1024 values, with a weight [1024, 1024], on one thread. It
// runs each in turn with its twin of FP32, and reports how many times longer the fastest call of BF16 takes.
func BenchmarkBF16(b *testing.B) {
	const n = 1024
	for _, isa := range cpu.ISAs() {
		if isa == "portable" {
			continue
		}
		for _, m := range []int{1, 4, 8, 64, 256} {
			var calls [2]map[string]func()
			var sync [2]func() error
			for i, numerics := range []npu.Numerics{npu.BF16, npu.FP32} {
				d := open(b, func(threads int) (npu.Device, error) { return cpu.OpenISA(isa, numerics, threads) }, 1)
				calls[i], sync[i] = rowKernels(b, d, m, n), d.Sync
			}
			for _, name := range slices.Sorted(maps.Keys(calls[0])) {
				b.Run(fmt.Sprintf("%s/%s/%d", isa, name, m), func(b *testing.B) {
					fastest := [2]time.Duration{math.MaxInt64, math.MaxInt64}
					for b.Loop() {
						for i := range calls {
							start := time.Now()
							calls[i][name]()
							require.NoError(b, sync[i]())
							fastest[i] = min(fastest[i], time.Since(start))
						}
					}
					b.ReportMetric(float64(fastest[0].Nanoseconds())/1e3, "us-bf16")
					b.ReportMetric(float64(fastest[1].Nanoseconds())/1e3, "us-fp32")
					b.ReportMetric(float64(fastest[0])/float64(fastest[1]), "ratio")
				})
			}
		}
	}
}

// rowKernels returns calls of kernels on m rows of n values.
func rowKernels(b *testing.B, d npu.Device, m, n int) map[string]func() {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(n int, deviation float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * deviation)
		}
		return x
	}
	const heads, eps = 8, 1e-6
	dtype := d.Info().Numerics.Type()
	activations := func() npu.Buffer { return values(b, d, dtype, normal(m*n, 1)) }
	x, y, z, dx := activations(), activations(), activations(), activations()
	residual, dResidual := values(b, d, npu.Float32, normal(m*n, 1)), values(b, d, npu.Float32, normal(m*n, 1))
	w, scale := weights(b, d, normal(n*n, 1/math.Sqrt(float64(n))), n, n), values(b, d, dtype, normal(n, 1))
	table := values(b, d, npu.Float32, normal(m*n/heads, 1))
	dw, dScale, l := matrixSums(b, d, n, n), sums(b, d, n), leaves(b, d, m, m)
	var positions npu.Ints
	batch(b, d, m, func(a *npu.Batch) { positions = a.Ints(make([]int32, m)) })
	return map[string]func(){
		"linear":          func() { d.Linear(dx, x, w, npu.Buffer{}, m, npu.Fresh) },
		"input":           func() { d.LinearBackwardInput(dx, []npu.Product{{DY: y, W: w, Block: n}}, m, false) },
		"weight":          func() { d.LinearBackwardWeight(dw, npu.Sums{}, y, x, l) },
		"norm":            func() { d.RMSNorm(dx, residual, scale, m, eps) },
		"norm backward":   func() { d.RMSNormBackward(dResidual, dScale, y, residual, scale, 1, eps, false, l) },
		"rope":            func() { d.Rope(z, table, positions, heads, n/heads, false) },
		"swiglu":          func() { d.SwiGLU(dx, x, y) },
		"swiglu backward": func() { d.SwiGLUBackward(dx, z, x, y, dx) },
	}
}
