package cpu_test

import (
	"fmt"
	"testing"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// BenchmarkDense measures products of M rows and a weight [N, K] on one thread, in
// GFLOP/s.
func BenchmarkDense(b *testing.B) {
	shapes := []struct{ m, n, k int }{
		{256, 512, 128},
		{1024, 1024, 256},
		{2048, 512, 512},
		{2048, 2048, 2048},
		{1, 2048, 2048},
		{8, 2048, 2048},
		{64, 384, 128},
	}
	for _, isa := range append(cpu.ISAs(), "go") {
		if isa == "portable" {
			continue
		}
		for _, s := range shapes {
			d := open(b, func(n int) (npu.Device, error) {
				if isa == "go" {
					return cpu.OpenPureGo(n)
				}
				return cpu.OpenISA(isa, n)
			}, 1)
			x, y := alloc(b, d, s.m*s.k, 1), alloc(b, d, s.m*s.n, 1)
			w := npu.Matrix{Buffer: alloc(b, d, d.MatrixLen(s.n, s.k), 0), Rows: s.n, Cols: s.k}
			for _, kernel := range []struct {
				name string
				call func()
			}{
				{"forward", func() { d.Linear(y, x, w, npu.Buffer{}, s.m, false) }},
				{"input", func() { d.LinearBackwardInput(x, y, w, s.m, false) }},
				{"weight", func() { d.LinearBackwardWeight(w, npu.Buffer{}, y, x, s.m) }},
			} {
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", isa, kernel.name, s.m, s.n, s.k), func(b *testing.B) {
					for b.Loop() {
						kernel.call()
					}
					work := 2 * float64(s.m) * float64(s.n) * float64(s.k) * float64(b.N)
					b.ReportMetric(work/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

// alloc returns a new buffer in which every seventh value is by and the others are
// zero, which keeps products finite.
func alloc(b *testing.B, d npu.Device, n int, by float32) npu.Buffer {
	b.Helper()
	buf, err := d.Alloc(n, npu.Activations)
	if err != nil {
		b.Fatal(err)
	}
	x := make([]float32, n)
	for i := 0; i < n; i += 7 {
		x[i] = by
	}
	d.Upload(buf, x)
	return buf
}
