//go:build cgo && unix

package mma_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/internal/mma"
)

// BenchmarkProduct measures products of M rows and a weight [1024, 1024] on one thread. It reports GFLOP/s
// of the fastest call.
func BenchmarkProduct(b *testing.B) {
	normal := func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }
	data := []source{
		{name: "normal", operand: normal},
		{name: "half zeros", operand: sometimes(2, one(0), normal)},
		{name: "zeros", operand: one(0)},
		{name: "large sums", operand: one(1.5)},
		{name: "largest sums", operand: one(0x1.fep0)},
		{name: "tiny", operand: one(0x1p-55)},
		{name: "huge", operand: sometimes(1000, one(0x1p64), normal)},
	}
	for _, isa := range mma.ISAs() {
		for _, m := range []int{1, 8, 64, 256} {
			for _, s := range data {
				if s.name != "normal" && m != 64 {
					continue
				}
				b.Run(fmt.Sprintf("%s/%d/%s", isa, m, s.name), func(b *testing.B) { benchmark(b, isa, m, s) })
			}
		}
	}
}

// benchmark multiplies in turn with the rule and with the CPU device's float32 product, and reports how many
// times slower the rule is.
func benchmark(b *testing.B, isa string, m int, s source) {
	const n, k = 1024, 1024
	r := rand.New(rand.NewPCG(1, 2))
	x, w, y := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
	for i := range x {
		x[i] = bf16.Round(s.operand(r)).Float()
	}
	for i := range w {
		w[i] = bf16.Round(s.operand(r)).Float()
	}
	weight := mma.Pack(isa, w, n, k)

	device, err := cpu.OpenISA(isa, npu.FP32, 1)
	require.NoError(b, err)
	defer device.Close()
	buffer := func(values int) npu.Buffer {
		buf, err := device.Alloc(npu.Float32, values, npu.Activations)
		require.NoError(b, err)
		return buf
	}
	dx, dy := buffer(m*k), buffer(m*n)
	dw := npu.Matrix{Buffer: buffer(device.MatrixLen(n, k)), Rows: n, Cols: k}
	device.Upload(dx, x)
	device.PackMatrix(dw, w)
	require.NoError(b, device.Sync())

	rule, plain := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		weight.Multiply(y, x, m, false, false)
		rule = min(rule, time.Since(start))
		start = time.Now()
		device.Linear(dy, dx, dw, npu.Buffer{}, m, npu.Fresh)
		require.NoError(b, device.Sync())
		plain = min(plain, time.Since(start))
	}
	work := 2 * float64(m) * n * k
	b.ReportMetric(work/float64(rule.Nanoseconds()), "GFLOP/s")
	b.ReportMetric(work/float64(plain.Nanoseconds()), "float32-GFLOP/s")
	b.ReportMetric(float64(rule)/float64(plain), "ratio")
}
