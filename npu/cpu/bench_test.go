package cpu_test

import (
	"fmt"
	"math/rand/v2"
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
					return cpu.OpenPureGo(npu.FP32, n)
				}
				return cpu.OpenISA(isa, npu.FP32, n)
			}, 1)
			x, y := alloc(b, d, s.m*s.k, 1), alloc(b, d, s.m*s.n, 1)
			w := npu.Matrix{Buffer: alloc(b, d, d.MatrixLen(s.n, s.k), 0), Rows: s.n, Cols: s.k}
			dw, one := matrixSums(b, d, s.n, s.k), leaves(b, d, s.m, s.m)
			for _, kernel := range []struct {
				name string
				call func()
			}{
				{"forward", func() { d.Linear(y, x, w, npu.Buffer{}, s.m, npu.Fresh) }},
				{"input", func() { d.LinearBackwardInput(x, []npu.Product{{DY: y, W: w, Block: s.n}}, s.m, false) }},
				{"weight", func() { d.LinearBackwardWeight(dw, npu.Sums{}, y, x, one) }},
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

// BenchmarkLeaves measures the gradient of a weight [N, K] over 10,000 rows in leaves of
// several lengths, on one thread, in GFLOP/s.
func BenchmarkLeaves(b *testing.B) {
	const rows = 10000
	for _, s := range [][2]int{{128, 128}, {384, 128}, {512, 512}, {1536, 512}} {
		n, k := s[0], s[1]
		d := open(b, in(npu.FP32, cpu.Open), 1)
		x, dy, dw := alloc(b, d, rows*k, 1), alloc(b, d, rows*n, 1), matrixSums(b, d, n, k)
		for _, leaf := range []int{20, 100, 200, 1000, 10000} {
			l := leaves(b, d, rows, leaf)
			b.Run(fmt.Sprintf("%dx%d/%d", n, k, leaf), func(b *testing.B) {
				for b.Loop() {
					d.LinearBackwardWeight(dw, npu.Sums{}, dy, x, l)
				}
				b.ReportMetric(2*rows*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkEmbedBackward measures the gradient of an embedding over 8,192 rows in leaves of several
// lengths, on one thread, in values per second. Ids have Zipf's distribution.
func BenchmarkEmbedBackward(b *testing.B) {
	const rows, vocab = 8192, 32768
	for _, cols := range []int{128, 896} {
		d := open(b, in(npu.FP32, cpu.Open), 1)
		dy, dw := alloc(b, d, rows*cols, 1), matrixSums(b, d, vocab, cols)
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 2, vocab-1)
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32(zipf.Uint64())
		}
		for _, leaf := range []int{200, 1000, 4096} {
			l := leaves(b, d, rows, leaf)
			var tokens npu.Tokens
			batch(b, d, 3*rows+1, func(a *npu.Batch) { tokens = a.Tokens(ids, l.Ends.Int32s(), 0) })
			b.Run(fmt.Sprintf("%d/%d", cols, leaf), func(b *testing.B) {
				for b.Loop() {
					d.EmbedBackward(dw, dy, &tokens, l.FixedPoint)
				}
				report(b, rows*float64(cols), "Gvalues/s")
			})
		}
	}
}

// leaves cuts rows into leaves of this length.
func leaves(b *testing.B, d npu.Device, rows, length int) *npu.Leaves {
	b.Helper()
	var ends []int32
	for end := 0; end < rows; {
		end = min(rows, end+length)
		ends = append(ends, int32(end))
	}
	var l npu.Leaves
	batch(b, d, len(ends)+npu.MaxUnits(len(ends), rows), func(a *npu.Batch) {
		l = a.Leaves(npu.FixedPoint{Scale: 1 << 30, Limit: 1 << 60}, ends, rows)
	})
	return &l
}

// sums returns n sums of 0.
func sums(b testing.TB, d npu.Device, n int) npu.Sums {
	b.Helper()
	buf, err := d.Alloc(npu.Int64, n+1, npu.Gradients)
	if err != nil {
		b.Fatal(err)
	}
	d.Zero(buf)
	return npu.NewSums(buf)
}

// matrixSums returns the sums of a weight's gradient.
func matrixSums(b testing.TB, d npu.Device, rows, cols int) npu.MatrixSums {
	b.Helper()
	return npu.MatrixSums{Sums: sums(b, d, d.MatrixLen(rows, cols)), Rows: rows, Cols: cols}
}

// alloc returns a new buffer in which every seventh value is by and the others are
// zero, which keeps products finite.
func alloc(b *testing.B, d npu.Device, n int, by float32) npu.Buffer {
	b.Helper()
	buf, err := d.Alloc(npu.Float32, n, npu.Activations)
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
