package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// group returns g groups, each a prompt with n responses.
func group(g int, prompt, n, response int32) []npu.Segment {
	var segments []npu.Segment
	var start int32
	for range g {
		root := int32(len(segments))
		segments = append(segments, npu.Segment{Start: start, Len: prompt, Parent: -1})
		start += prompt
		for range n {
			segments = append(segments, npu.Segment{Start: start, Len: response, Parent: root})
			start += response
		}
	}
	return segments
}

// attentionBenchmarks returns a group as in small tasks, a batch of such groups, a
// group with a long prompt, and lone sequences.
func attentionBenchmarks() []struct {
	name     string
	segments []npu.Segment
	h        npu.Heads
} {
	return []struct {
		name     string
		segments []npu.Segment
		h        npu.Heads
	}{
		{"10+8x30/4-2x32", group(1, 10, 8, 30), npu.Heads{Q: 4, KV: 2, Dim: 32}},
		{"8x(10+8x30)/4-2x32", group(8, 10, 8, 30), npu.Heads{Q: 4, KV: 2, Dim: 32}},
		{"256+8x100/14-2x64", group(1, 256, 8, 100), npu.Heads{Q: 14, KV: 2, Dim: 64}},
		{"512/4-4x64", group(1, 512, 0, 0), npu.Heads{Q: 4, KV: 4, Dim: 64}},
		{"512/16-8x128", group(1, 512, 0, 0), npu.Heads{Q: 16, KV: 8, Dim: 128}},
		{"2048/4-2x64", group(1, 2048, 0, 0), npu.Heads{Q: 4, KV: 2, Dim: 64}},
	}
}

// pairs returns the number of query rows and of pairs of a query row and a key that
// it attends to.
func pairs(segments []npu.Segment) (rows, n int) {
	for _, s := range segments {
		before := 0
		for a := s.Parent; a >= 0; a = segments[a].Parent {
			before += int(segments[a].Len)
		}
		rows += int(s.Len)
		n += int(s.Len)*before + int(s.Len)*int(s.Len+1)/2
	}
	return rows, n
}

// benchDevice opens the device on one thread and returns it with an allocator of
// random values.
func benchDevice(b *testing.B) (npu.Device, func(n int) npu.Buffer) {
	b.Helper()
	d, err := cpu.Open(npu.FP32, 1)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.Close()) })
	r := rand.New(rand.NewPCG(1, 2))
	return d, func(n int) npu.Buffer {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		buf, err := d.Alloc(npu.Float32, n, npu.Activations)
		require.NoError(b, err)
		d.Upload(buf, x)
		return buf
	}
}

// batch uploads index arrays of at most this number of values.
func batch(b testing.TB, d npu.Device, values int, add func(a *npu.Batch)) {
	b.Helper()
	a := npu.NewBatch(d)
	require.NoError(b, a.Begin(values))
	add(a)
	a.Upload()
	require.NoError(b, d.Sync())
}

// report reports a rate of ops operations per call, in billions per second.
func report(b *testing.B, ops float64, unit string) {
	b.ReportMetric(ops*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
}

// BenchmarkAttention counts the two products of each pair of query row and key.
func BenchmarkAttention(b *testing.B) {
	for _, c := range attentionBenchmarks() {
		b.Run(c.name, func(b *testing.B) {
			d, random := benchDevice(b)
			t, n := pairs(c.segments)
			wq, wk := t*c.h.Q*c.h.Dim, t*c.h.KV*c.h.Dim
			out, stats, q, k, v := random(wq), random(2*t*c.h.Q), random(wq), random(wk), random(wk)
			var segments npu.Segments
			batch(b, d, npu.SegmentValues(c.segments), func(a *npu.Batch) { segments = a.Segments(c.segments) })
			for b.Loop() {
				d.Attention(out, stats, q, k, v, segments, c.h)
			}
			report(b, 4*float64(n*c.h.Q*c.h.Dim), "GFLOP/s")
		})
	}
}

// BenchmarkAttentionBackward counts the five products of each pair.
func BenchmarkAttentionBackward(b *testing.B) {
	for _, c := range attentionBenchmarks() {
		b.Run(c.name, func(b *testing.B) {
			d, random := benchDevice(b)
			t, n := pairs(c.segments)
			wq, wk := t*c.h.Q*c.h.Dim, t*c.h.KV*c.h.Dim
			out, stats, q, k, v := random(wq), random(2*t*c.h.Q), random(wq), random(wk), random(wk)
			dOut, dq, dk, dv := random(wq), random(wq), random(wk), random(wk)
			var segments npu.Segments
			batch(b, d, npu.SegmentValues(c.segments), func(a *npu.Batch) { segments = a.Segments(c.segments) })
			d.Attention(out, stats, q, k, v, segments, c.h)
			for b.Loop() {
				d.AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v, segments, c.h)
			}
			report(b, 10*float64(n*c.h.Q*c.h.Dim), "GFLOP/s")
		})
	}
}

// BenchmarkAttentionCached reports the rate at which keys and values are read.
func BenchmarkAttentionCached(b *testing.B) {
	h := npu.Heads{Q: 14, KV: 2, Dim: 64}
	for _, c := range [][2]int{{1, 512}, {32, 40}, {8, 512}, {1, 8192}} {
		b.Run(fmt.Sprintf("%dx%d", c[0], c[1]), func(b *testing.B) {
			d, random := benchDevice(b)
			t, stride := c[0], c[1]/npu.PageSize+1
			var pages, rows, lens []int32
			for i := range t {
				rows = append(rows, int32(i))
				for page := range stride {
					pages = append(pages, int32(i*stride+page))
				}
				lens = append(lens, int32(c[1]))
			}
			width := len(pages) * npu.PageSize * h.KV * h.Dim
			q, out, cacheK, cacheV := random(t*h.Q*h.Dim), random(t*h.Q*h.Dim), random(width), random(width)
			var tables npu.Tables
			batch(b, d, len(pages)+3*len(lens)+1,
				func(a *npu.Batch) { tables = a.Tables(a.Ints(pages), stride, rows, lens) })
			for b.Loop() {
				d.AttentionCached(out, q, cacheK, cacheV, &tables, h)
			}
			report(b, float64(8*t*c[1]*h.KV*h.Dim), "GB/s")
			report(b, float64(4*t*c[1]*h.Q*h.Dim), "GFLOP/s")
		})
	}
}

// BenchmarkRMSNorm reports values per second, forward and backward.
func BenchmarkRMSNorm(b *testing.B) {
	for _, c := range [][2]int{{1000, 128}, {256, 1024}, {4000, 32}, {4000, 8}} {
		d, random := benchDevice(b)
		t, n := c[0], c[1]
		x, y, w, dy, l := random(t*n), random(t*n), random(n), random(t*n), leaves(b, d, t, 200)
		dw := sums(b, d, n)
		b.Run(fmt.Sprintf("forward/%dx%d", t, n), func(b *testing.B) {
			for b.Loop() {
				d.RMSNorm(y, x, w, t, 1e-6)
			}
			report(b, float64(t*n), "Gvalues/s")
		})
		b.Run(fmt.Sprintf("backward/%dx%d", t, n), func(b *testing.B) {
			for b.Loop() {
				d.RMSNormBackward(y, dw, dy, x, w, 1, 1e-6, false, l)
			}
			report(b, float64(t*n), "Gvalues/s")
		})
	}
}

// BenchmarkPointwise reports values per second of rotary positions and SwiGLU.
func BenchmarkPointwise(b *testing.B) {
	const n = 1 << 16
	d, random := benchDevice(b)
	x, y, z, u := random(n), random(n), random(n), random(n)
	list := make([]int32, n/256)
	for i := range list {
		list[i] = int32(i)
	}
	var positions npu.Ints
	batch(b, d, len(list), func(a *npu.Batch) { positions = a.Ints(list) })
	b.Run("rope", func(b *testing.B) {
		for b.Loop() {
			d.Rope(x, y, positions, 4, 64, false)
		}
		report(b, n, "Gvalues/s")
	})
	b.Run("swiglu", func(b *testing.B) {
		for b.Loop() {
			d.SwiGLU(z, y, u)
		}
		report(b, n, "Gvalues/s")
	})
	b.Run("swiglu backward", func(b *testing.B) {
		for b.Loop() {
			d.SwiGLUBackward(x, z, y, u, y)
		}
		report(b, n, "Gvalues/s")
	})
}
