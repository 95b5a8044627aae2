package nputest_test

import (
	"math"
	"slices"

	"github.com/easyrl/easyrl/npu"
)

func (d *deferred) at(b npu.Buffer) npu.Buffer { return d.space.at(b) }

func (d *deferred) buffers(list []npu.Buffer) (all []npu.Buffer) {
	for _, b := range list {
		all = append(all, d.at(b))
	}
	return all
}

func (d *deferred) ints(l npu.Ints) npu.Ints {
	return npu.Ints{Buffer: d.at(l.Buffer), Min: l.Min, Max: l.Max}
}

func (d *deferred) matrix(m npu.Matrix) npu.Matrix {
	return npu.Matrix{Buffer: d.at(m.Buffer), Rows: m.Rows, Cols: m.Cols}
}

func (d *deferred) sums(s npu.Sums) npu.Sums {
	return npu.Sums{Buffer: d.at(s.Buffer), Mark: d.at(s.Mark)}
}

func (d *deferred) matrixSums(s npu.MatrixSums) npu.MatrixSums {
	return npu.MatrixSums{Sums: d.sums(s.Sums), Rows: s.Rows, Cols: s.Cols}
}

func (d *deferred) leaves(l npu.Leaves) *npu.Leaves {
	l.Ends, l.Units = d.ints(l.Ends), d.ints(l.Units)
	return &l
}

func (d *deferred) segments(s npu.Segments) npu.Segments {
	s.Buffer, s.Tiles = d.at(s.Buffer), d.at(s.Tiles)
	return s
}

func (d *deferred) Upload(dst npu.Buffer, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.Len("upload", dst, len(src))
	src = slices.Clone(src)
	d.later(func() { d.Device.Upload(d.at(dst), src) })
}

func (d *deferred) UploadInts(dst npu.Buffer, src []int32) {
	d.check.OutsideCapture("upload")
	d.check.Buffer("upload", dst, npu.Int32, len(src))
	src = slices.Clone(src)
	d.later(func() { d.Device.UploadInts(d.at(dst), src) })
}

func (d *deferred) Download(dst []float32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Len("download", src, len(dst))
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
	d.later(func() { d.Device.Download(dst, d.at(src)) })
}

func (d *deferred) DownloadInts(dst []int32, src npu.Buffer) {
	d.check.OutsideCapture("download")
	d.check.Buffer("download", src, npu.Int32, len(dst))
	for i := range dst {
		dst[i] = math.MinInt32
	}
	d.later(func() { d.Device.DownloadInts(dst, d.at(src)) })
}

func (d *deferred) Copy(dst, src npu.Buffer) {
	d.check.Copy(dst, src)
	d.later(func() { d.Device.Copy(d.at(dst), d.at(src)) })
}

func (d *deferred) Zero(b npu.Buffer) {
	d.check.Own("zero", b)
	d.later(func() { d.Device.Zero(d.at(b)) })
}

func (d *deferred) PackMatrix(m npu.Matrix, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.HostValues("pack matrix", m, src)
	src = slices.Clone(src)
	d.later(func() { d.Device.PackMatrix(d.matrix(m), src) })
}

func (d *deferred) UnpackMatrix(dst []float32, m npu.Matrix) {
	d.check.OutsideCapture("download")
	d.check.HostValues("unpack matrix", m, dst)
	for i := range dst {
		dst[i] = float32(math.NaN())
	}
	d.later(func() { d.Device.UnpackMatrix(dst, d.matrix(m)) })
}

func (d *deferred) SumPanels(sums []uint64, matrices []npu.Matrix) error {
	d.check.SumPanels(sums, matrices)
	d.run()
	var all []npu.Matrix
	for _, m := range matrices {
		all = append(all, d.matrix(m))
	}
	return d.Device.SumPanels(sums, all)
}

func (d *deferred) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.check.Embed(y, table, ids)
	d.later(func() { d.Device.Embed(d.at(y), d.matrix(table), d.ints(ids)) })
}

func (d *deferred) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, tokens *npu.Tokens, format npu.FixedPoint) {
	d.check.EmbedBackward(dTable, dy, tokens, format)
	held := *tokens
	d.later(func() {
		t := held
		t.IDs, t.Rows, t.Starts = d.ints(t.IDs), d.ints(t.Rows), d.ints(t.Starts)
		d.Device.EmbedBackward(d.matrixSums(dTable), d.at(dy), &t, format)
	})
}

func (d *deferred) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.check.Linear(y, x, w, bias, t, start)
	d.later(func() { d.Device.Linear(d.at(y), d.at(x), d.matrix(w), d.at(bias), t, start) })
}

func (d *deferred) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	d.check.Products(dx, products, t, add)
	products = slices.Clone(products)
	d.later(func() {
		var all []npu.Product
		for _, p := range products {
			all = append(all, npu.Product{DY: d.at(p.DY), W: d.matrix(p.W), Block: p.Block})
		}
		d.Device.LinearBackwardInput(d.at(dx), all, t, add)
	})
}

func (d *deferred) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	d.check.LinearSums(dw, dBias, dy, x, l)
	cuts := *l
	d.later(func() {
		d.Device.LinearBackwardWeight(d.matrixSums(dw), d.sums(dBias), d.at(dy), d.at(x), d.leaves(cuts))
	})
}

func (d *deferred) Convert(y, x npu.Buffer) {
	d.check.Convert(y, x)
	d.later(func() { d.Device.Convert(d.at(y), d.at(x)) })
}

func (d *deferred) Add(y, x npu.Buffer) {
	d.check.Len("add", y, y.Len())
	d.check.Len("add", x, y.Len())
	d.later(func() { d.Device.Add(d.at(y), d.at(x)) })
}

func (d *deferred) GatherRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("gather rows", y, x, rows, cols)
	d.later(func() { d.Device.GatherRows(d.at(y), d.at(x), d.ints(rows), cols) })
}

func (d *deferred) ScatterAddRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("scatter rows", x, y, rows, cols)
	d.later(func() { d.Device.ScatterAddRows(d.at(y), d.at(x), d.ints(rows), cols) })
}

func (d *deferred) SetInts(y npu.Buffer, at, x npu.Ints) {
	d.check.SetInts(y, at, x)
	d.later(func() { d.Device.SetInts(d.at(y), d.ints(at), d.ints(x)) })
}

func (d *deferred) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int, eps float32) {
	d.check.NormLinear(outputs, norm, x, weight, t)
	outputs = slices.Clone(outputs)
	d.later(func() {
		var all []npu.Projection
		for _, o := range outputs {
			all = append(all, npu.Projection{Y: d.at(o.Y), W: d.matrix(o.W), Bias: d.at(o.Bias)})
		}
		d.Device.NormLinear(all, d.at(norm), d.at(x), d.at(weight), t, eps)
	})
}

func (d *deferred) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	d.check.Norm(y, x, weight, t)
	d.later(func() { d.Device.RMSNorm(d.at(y), d.at(x), d.at(weight), t, eps) })
}

func (d *deferred) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, eps float32,
	add bool, l *npu.Leaves) {
	d.check.NormBackward(dx, dWeight, dy, x, weight, heads, l)
	cuts := *l
	d.later(func() {
		d.Device.RMSNormBackward(d.at(dx), d.sums(dWeight), d.at(dy), d.at(x), d.at(weight), heads, eps, add,
			d.leaves(cuts))
	})
}

func (d *deferred) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int, inverse bool) {
	d.check.Rope(x, table, positions, heads, dim)
	d.later(func() { d.Device.Rope(d.at(x), d.at(table), d.ints(positions), heads, dim, inverse) })
}

func (d *deferred) SwiGLU(y, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu", y.Len(), y, gate, up)
	d.later(func() { d.Device.SwiGLU(d.at(y), d.at(gate), d.at(up)) })
}

func (d *deferred) SwiGLUBackward(dGate, dUp, dy, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu backward", dy.Len(), dy, gate, up, dGate, dUp)
	d.later(func() { d.Device.SwiGLUBackward(d.at(dGate), d.at(dUp), d.at(dy), d.at(gate), d.at(up)) })
}

func (d *deferred) Attention(out, stats, q, k, v npu.Buffer, segments npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, segments, h)
	d.check.OptionalLen("attention: stats", stats, q.Len()/h.Dim*2)
	d.later(func() {
		d.Device.Attention(d.at(out), d.at(stats), d.at(q), d.at(k), d.at(v), d.segments(segments), h)
	})
}

func (d *deferred) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, segments npu.Segments,
	h npu.Heads) {
	d.check.Attention(out, q, k, v, segments, h)
	d.check.Attention(dOut, dq, dk, dv, segments, h)
	d.check.Len("attention backward: stats", stats, q.Len()/h.Dim*2)
	d.later(func() {
		d.Device.AttentionBackward(d.at(dq), d.at(dk), d.at(dv), d.at(dOut), d.at(out), d.at(stats), d.at(q), d.at(k),
			d.at(v), d.segments(segments), h)
	})
}

func (d *deferred) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	d.check.CacheWrite(cacheK, cacheV, k, v, slots, h)
	d.later(func() { d.Device.CacheWrite(d.at(cacheK), d.at(cacheV), d.at(k), d.at(v), d.ints(slots), h) })
}

func (d *deferred) AttentionCached(out, q, cacheK, cacheV npu.Buffer, tables *npu.Tables, h npu.Heads) {
	d.check.AttentionCached(out, q, cacheK, cacheV, tables, h)
	held := *tables
	d.later(func() {
		t := held
		t.Pages, t.Rows, t.Lens, t.Blocks = d.ints(t.Pages), d.ints(t.Rows), d.ints(t.Lens), d.ints(t.Blocks)
		d.Device.AttentionCached(d.at(out), d.at(q), d.at(cacheK), d.at(cacheV), &t, h)
	})
}

func (d *deferred) SoftmaxMax(max, logits npu.Buffer, n int, invTemp float32) {
	d.check.SoftmaxMax(max, logits, n)
	d.later(func() { d.Device.SoftmaxMax(d.at(max), d.at(logits), n, invTemp) })
}

func (d *deferred) SoftmaxSum(sums, max, logits npu.Buffer, targets npu.Ints, first int, invTemp float32, add bool) {
	d.check.SoftmaxSum(sums, max, logits, targets, first)
	d.later(func() {
		d.Device.SoftmaxSum(d.at(sums), d.at(max), d.at(logits), d.ints(targets), first, invTemp, add)
	})
}

func (d *deferred) SoftmaxFinish(logp, entropy, stats, sums, max npu.Buffer, n int) {
	d.check.SoftmaxFinish(logp, entropy, stats, sums, max, n)
	d.later(func() {
		d.Device.SoftmaxFinish(d.at(logp), d.at(entropy), d.at(stats), d.at(sums), d.at(max), n)
	})
}

func (d *deferred) SoftmaxBackward(dLogits, logits, dLogp, stats npu.Buffer, targets npu.Ints, first int,
	invTemp float32) {
	d.check.SoftmaxBackward(dLogits, logits, dLogp, stats, targets, first)
	d.later(func() {
		d.Device.SoftmaxBackward(d.at(dLogits), d.at(logits), d.at(dLogp), d.at(stats), d.ints(targets), first, invTemp)
	})
}

func (d *deferred) Sample(ids, logp, logits npu.Buffer, vocab int, params npu.Params) {
	d.check.Sample(ids, logp, logits, vocab, params)
	d.later(func() {
		d.Device.Sample(d.at(ids), d.at(logp), d.at(logits), vocab,
			npu.Params{Buffer: d.at(params.Buffer), N: params.N})
	})
}

func (d *deferred) AdamW(updates []npu.Update, p npu.AdamWParams) {
	d.check.AdamW(updates)
	updates = slices.Clone(updates)
	d.later(func() {
		var all []npu.Update
		for _, u := range updates {
			all = append(all, npu.Update{
				W: d.at(u.W), Copy: d.at(u.Copy), G: d.sums(u.G), M: d.at(u.M), V: d.at(u.V), Decay: u.Decay,
			})
		}
		d.Device.AdamW(all, p)
	})
}

func (d *deferred) SumSquares(sums []float64, x []npu.Buffer) error {
	d.check.SumSquares(sums, x)
	d.run()
	return d.Device.SumSquares(sums, d.buffers(x))
}

func (d *deferred) SumSquaresExact(sums []npu.Squares, g []npu.Sums) error {
	d.check.SumSquaresExact(sums, g)
	d.run()
	var all []npu.Sums
	for _, s := range g {
		all = append(all, d.sums(s))
	}
	return d.Device.SumSquaresExact(sums, all)
}
