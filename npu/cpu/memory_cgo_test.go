//go:build cgo && unix

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// An allocation that fails says how much was asked for, in GiB.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	d, err := Open(npu.FP32, 1)
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // nothing is pending
	b, err := d.Alloc(npu.Float32, 1<<20, npu.Weights)
	require.NoError(t, err)
	defer d.Free(b)
	_, err = d.Alloc(npu.Float32, 1<<47, npu.Gradients)
	require.ErrorContains(t, err, "allocate 524288.0 GiB for gradients on ")
	require.ErrorContains(t, err, ": out of memory; this queue has allocated 4.0 MiB")
}

// Kernels are called thousands of times a second. A call makes no garbage.
func TestCallsDoNotAllocate(t *testing.T) { // not parallel: allocations are the process's
	d, err := Open(npu.FP32, 1)
	require.NoError(t, err)
	defer d.Close() //nolint:errcheck // nothing is pending
	alloc := func(dtype npu.DType, n int) npu.Buffer {
		b, err := d.Alloc(dtype, n, npu.Activations)
		require.NoError(t, err)
		d.Zero(b)
		return b
	}
	const t1, dim = 4, 32
	h := npu.Heads{Q: 2, KV: 1, Dim: dim / 2}
	x, y, z, kv := alloc(npu.Float32, t1*dim), alloc(npu.Float32, t1*dim), alloc(npu.Float32, t1*dim),
		alloc(npu.Float32, t1*dim/2)
	stats, row := alloc(npu.Float32, t1*4), alloc(npu.Float32, t1)
	softmax := alloc(npu.Int64, t1*npu.SoftmaxSums)
	w := npu.Matrix{Buffer: alloc(npu.Float32, d.MatrixLen(dim, dim)), Rows: dim, Cols: dim}
	cache := alloc(npu.Float32, npu.PageSize*h.KV*h.Dim)
	dw := npu.MatrixSums{Sums: npu.NewSums(alloc(npu.Int64, w.Len()+1)), Rows: dim, Cols: dim}
	db, ids := npu.NewSums(alloc(npu.Int64, dim+1)), alloc(npu.Int32, t1)
	batch := npu.NewBatch(d)
	require.NoError(t, batch.Begin(200))
	f := npu.FixedPoint{Scale: 1, Limit: 1 << 20}
	ends := []int32{2, t1}
	leaves, tokens, list := batch.Leaves(f, ends, t1), batch.Tokens(make([]int32, t1), ends, 0),
		batch.Ints(make([]int32, t1))
	forest := batch.Segments([]npu.Segment{{Len: t1, Parent: -1}})
	tables := batch.Tables(list, 1, []int32{0, 1, 2, 3}, []int32{1, 1, 1, 1})
	params := batch.Params(make([]npu.SampleParams, t1))
	batch.Upload()
	host, hostInts := make([]float32, t1), make([]int32, t1)
	sum, squares, values, gradients := make([]float64, 1), make([]npu.Squares, 1), []npu.Buffer{x}, []npu.Sums{db}
	outputs := []npu.Projection{{Y: y, W: w}}
	products := []npu.Product{{DY: y, W: w, Block: 1}}
	updates := []npu.Update{{W: w.Buffer, G: dw.Sums, M: alloc(npu.Float32, w.Len()), V: alloc(npu.Float32, w.Len())}}
	for name, call := range map[string]func(){
		"upload": func() { d.Upload(row, host); d.UploadInts(ids, hostInts); batch.Upload() },
		"memory": func() {
			d.Download(host, row)
			d.DownloadInts(hostInts, ids)
			d.Copy(y, x)
			d.Zero(y)
		},
		"embed":  func() { d.Embed(x, w, list); d.EmbedBackward(dw, y, &tokens, f) },
		"linear": func() { d.Linear(y, x, w, npu.Buffer{}, t1, npu.Fresh) },
		"linear backward": func() {
			d.LinearBackwardInput(x, products, t1, false)
			d.LinearBackwardWeight(dw, db, y, x, &leaves)
		},
		"rows": func() {
			d.Add(y, x)
			d.GatherRows(y, x, list, dim)
			d.ScatterAddRows(y, x, list, dim)
			d.SetInts(ids, list, list)
		},
		"norm": func() {
			d.RMSNorm(y, x, w.Buffer.Slice(0, dim), t1, 1e-6)
			d.NormLinear(outputs, z, x, w.Buffer.Slice(0, dim), t1, 1e-6)
			d.RMSNormBackward(z, db, y, x, w.Buffer.Slice(0, dim), 1, 1e-6, false, &leaves)
		},
		"pointwise": func() { d.Rope(x, y, list, 1, dim, false); d.SwiGLU(z, x, y); d.SwiGLUBackward(x, y, z, x, y) },
		"attention": func() {
			d.Attention(y, stats, x, kv, kv, forest, h)
			d.AttentionBackward(z, kv, kv, z, y, stats, x, kv, kv, forest, h)
		},
		"cached attention": func() {
			d.CacheWrite(cache, cache, kv, kv, list, h)
			d.AttentionCached(y, x, cache, cache, &tables, h)
		},
		"softmax": func() {
			d.SoftmaxMax(row, x, t1, 1)
			d.SoftmaxSum(softmax, row, x, list, 0, 1, false)
			d.SoftmaxFinish(row, row, stats.Slice(0, 2*t1), softmax, row, t1)
			d.SoftmaxBackward(x, x, row, stats.Slice(0, 2*t1), list, 0, 1)
			d.Sample(ids, row, y, dim, params)
		},
		"update": func() {
			d.AdamW(updates, npu.AdamWParams{Step: 1})
			_ = d.SumSquares(sum, values)
			_ = d.SumSquaresExact(squares, gradients)
		},
	} {
		require.Zero(t, testing.AllocsPerRun(10, call), name)
		_ = d.Sync() // the values are of no interest
	}
}
