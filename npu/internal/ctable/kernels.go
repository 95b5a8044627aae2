//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"slices"
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// Each kernel method checks its operands, converts them to the C types of table.h, in which
// addresses are integers, and queues one call. C.t_NAME(d.t, d.d, …) calls the table's entry
// NAME on the queue. The C side has read a list when the call returns, so a method converts a
// list into a slice that the device keeps for the next call.

// addr returns the device address of b, 0 for the zero Buffer.
func addr(b npu.Buffer) C.addr { return C.addr(b.Addr()) }

// cType returns the type of b's values, which is Float32 or BFloat16.
func cType(b npu.Buffer) C.easyrl_dtype { return C.easyrl_dtype(b.DType()) }

func cBool(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func cMatrix(m npu.Matrix) C.matrix {
	return C.matrix{data: addr(m.Buffer), rows: C.int32_t(m.Rows), cols: C.int32_t(m.Cols)}
}

func cSums(s npu.Sums) C.sums { return C.sums{data: addr(s.Buffer), mark: addr(s.Mark)} }

func cMatrixSums(m npu.MatrixSums) C.matrix_sums {
	return C.matrix_sums{s: cSums(m.Sums), rows: C.int32_t(m.Rows), cols: C.int32_t(m.Cols)}
}

func cFixedPoint(f npu.FixedPoint) C.easyrl_fixed_point {
	return C.easyrl_fixed_point{scale: C.float(f.Scale), limit: C.float(f.Limit)}
}

// The header repeats constants of package npu; these do not compile unless they are equal.
const (
	_ = uint(-(C.EASYRL_FLOAT32 ^ C.long(npu.Float32)))
	_ = uint(-(C.EASYRL_BFLOAT16 ^ C.long(npu.BFloat16)))
	_ = uint(-(C.EASYRL_CONTINUE ^ C.long(npu.Continue)))
	_ = uint(-(C.EASYRL_ADD ^ C.long(npu.Add)))
	_ = uint(-(C.EASYRL_PAGE_SIZE ^ npu.PageSize))
	_ = uint(-(C.EASYRL_UNIT_ROWS ^ npu.UnitRows))
	_ = uint(-(C.EASYRL_KEY_TILE ^ npu.KeyTile))
	_ = uint(-(C.EASYRL_KEY_SPLIT ^ npu.KeySplit))
	_ = uint(-(C.EASYRL_PART_ROWS ^ npu.PartRows))
	_ = uint(-(C.EASYRL_ROW_TILE ^ npu.RowTile))
	_ = uint(-(C.EASYRL_QUERY_BLOCK ^ npu.QueryBlock))
	_ = uint(-(C.EASYRL_SOFTMAX_SUMS ^ npu.SoftmaxSums))
)

func cLeaves(l *npu.Leaves) C.leaves {
	return C.leaves{ends: addr(l.Ends.Buffer), units: addr(l.Units.Buffer), n: C.int32_t(l.Ends.Len()),
		n_units: C.int32_t(l.Units.Len()), rows: C.int32_t(l.Rows), format: cFixedPoint(l.FixedPoint)}
}

func cSegments(s npu.Segments) C.segments {
	return C.segments{list: addr(s.Buffer), tiles: addr(s.Tiles), n: C.int32_t(s.N),
		n_tiles: C.int32_t(s.Tiles.Len() / 2), rows: C.int32_t(s.Rows)}
}

func cHeads(h npu.Heads) C.easyrl_heads {
	return C.easyrl_heads{q: C.int32_t(h.Q), kv: C.int32_t(h.KV), dim: C.int32_t(h.Dim), window: C.int32_t(h.Window)}
}

// PackMatrix implements npu.Device.
func (d *device) PackMatrix(m npu.Matrix, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.HostValues("pack matrix", m, src)
	if d.staging == nil {
		C.t_pack_matrix(d.t, d.d, cMatrix(m), bytePointer(bytesOf(src)))
		return
	}
	d.pack(m, bytesOf(src))
}

// UnpackMatrix implements npu.Device.
func (d *device) UnpackMatrix(dst []float32, m npu.Matrix) {
	d.check.OutsideCapture("download")
	d.check.HostValues("unpack matrix", m, dst)
	if d.staging == nil {
		C.t_unpack_matrix(d.t, d.d, bytePointer(bytesOf(dst)), cMatrix(m))
		return
	}
	d.unpack(bytesOf(dst), m)
}

// SumPanels implements npu.Device.
func (d *device) SumPanels(sums []uint64, matrices []npu.Matrix) error {
	d.check.OutsideCapture("wait")
	d.check.SumPanels(sums, matrices) // also checks a vector, which cMatrix turns into Cols 0
	list := d.matrices[:0]
	for _, m := range matrices {
		list = append(list, cMatrix(m))
	}
	d.matrices = list
	C.t_sum_panels(d.t, d.d, (*C.uint64_t)(unsafe.SliceData(sums)), unsafe.SliceData(list), C.int32_t(len(list)))
	return d.Sync()
}

// Embed implements npu.Device.
func (d *device) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.check.Embed(y, table, ids)
	C.t_embed(d.t, d.d, addr(y), cMatrix(table), addr(ids.Buffer), C.int32_t(ids.Len()))
}

// EmbedBackward implements npu.Device.
func (d *device) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, tokens *npu.Tokens, format npu.FixedPoint) {
	d.check.EmbedBackward(dTable, dy, tokens, format)
	C.t_embed_backward(d.t, d.d, cMatrixSums(dTable), addr(dy), C.tokens{
		ids: addr(tokens.IDs.Buffer), rows: addr(tokens.Rows.Buffer), starts: addr(tokens.Starts.Buffer),
		t: C.int32_t(tokens.IDs.Len()), lists: C.int32_t(tokens.Lists()),
	}, cFixedPoint(format))
}

// Linear implements npu.Device.
func (d *device) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.check.Linear(y, x, w, bias, t, start)
	C.t_linear(d.t, d.d, addr(y), cType(y), addr(x), cMatrix(w), addr(bias), C.int32_t(t), C.easyrl_start(start))
}

// LinearBackwardInput implements npu.Device.
func (d *device) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	d.check.Products(dx, products, t, add)
	list := d.products[:0]
	for i := range products {
		p := &products[i]
		list = append(list, C.product{dy: addr(p.DY), w: cMatrix(p.W), block: C.int32_t(p.Block)})
	}
	d.products = list
	C.t_linear_backward_input(d.t, d.d, addr(dx), cType(dx), unsafe.SliceData(list), C.int32_t(len(list)), C.int32_t(t),
		C.easyrl_start(cBool(add)))
}

// LinearBackwardWeight implements npu.Device.
func (d *device) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	d.check.LinearSums(dw, dBias, dy, x, l)
	C.t_linear_backward_weight(d.t, d.d, cMatrixSums(dw), cSums(dBias), addr(dy), addr(x), cLeaves(l))
}

// Convert implements npu.Device.
func (d *device) Convert(y, x npu.Buffer) {
	d.check.Convert(y, x)
	if y.DType() == x.DType() {
		d.Copy(y, x)
		return
	}
	C.t_convert(d.t, d.d, addr(y), cType(y), addr(x), cType(x), C.int64_t(x.Len()))
}

// Add implements npu.Device.
func (d *device) Add(y, x npu.Buffer) {
	d.check.Len("add: y", y, y.Len())
	d.check.Len("add: x", x, y.Len())
	C.t_add(d.t, d.d, addr(y), addr(x), C.int64_t(y.Len()))
}

// GatherRows implements npu.Device.
func (d *device) GatherRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("gather rows", y, x, rows, cols)
	C.t_gather_rows(d.t, d.d, addr(y), addr(x), addr(rows.Buffer), C.int32_t(rows.Len()), C.int32_t(cols))
}

// ScatterAddRows implements npu.Device.
func (d *device) ScatterAddRows(y, x npu.Buffer, rows npu.Ints, cols int) {
	d.check.Rows("scatter rows", x, y, rows, cols)
	C.t_scatter_add_rows(d.t, d.d, addr(y), addr(x), addr(rows.Buffer), C.int32_t(rows.Len()), C.int32_t(cols))
}

// SetInts implements npu.Device.
func (d *device) SetInts(y npu.Buffer, indices, x npu.Ints) {
	d.check.SetInts(y, indices, x)
	C.t_set_ints(d.t, d.d, addr(y), addr(indices.Buffer), addr(x.Buffer), C.int32_t(x.Len()))
}

// RMSNorm implements npu.Device.
func (d *device) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	d.check.Norm(y, x, weight, t)
	C.t_rms_norm(d.t, d.d, addr(y), addr(x), cType(x), addr(weight), C.int32_t(t), C.int32_t(weight.Len()),
		C.float(eps))
}

// NormLinear implements npu.Device.
func (d *device) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int, eps float32) {
	d.check.NormLinear(outputs, norm, x, weight, t)
	if !d.normLinear { // the library lacks the fused kernel
		C.t_rms_norm(d.t, d.d, addr(norm), addr(x), cType(x), addr(weight), C.int32_t(t), C.int32_t(weight.Len()),
			C.float(eps))
		for i := range outputs {
			o := &outputs[i]
			C.t_linear(d.t, d.d, addr(o.Y), cType(o.Y), addr(norm), cMatrix(o.W), addr(o.Bias), C.int32_t(t), 0)
		}
		return
	}
	list := d.outputs[:0]
	for i := range outputs {
		o := &outputs[i]
		list = append(list, C.projection{y: addr(o.Y), w: cMatrix(o.W), bias: addr(o.Bias)})
	}
	d.outputs = list
	C.t_norm_linear(d.t, d.d, unsafe.SliceData(list), C.int32_t(len(list)), addr(norm), addr(x), addr(weight),
		C.int32_t(t),
		C.int32_t(weight.Len()), C.float(eps))
}

// RMSNormBackward implements npu.Device.
func (d *device) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, eps float32,
	add bool, l *npu.Leaves) {
	d.check.NormBackward(dx, dWeight, dy, x, weight, heads, l)
	C.t_rms_norm_backward(d.t, d.d, addr(dx), cSums(dWeight), addr(dy), addr(x), cType(x), addr(weight),
		C.int32_t(heads), C.int32_t(weight.Len()), C.float(eps), cBool(add), cLeaves(l))
}

// Rope implements npu.Device.
func (d *device) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int, inverse bool) {
	d.check.Rope(x, table, positions, heads, dim)
	C.t_rope(d.t, d.d, addr(x), addr(table), addr(positions.Buffer), C.int32_t(positions.Len()), C.int32_t(heads),
		C.int32_t(dim), cBool(inverse))
}

// SwiGLU implements npu.Device.
func (d *device) SwiGLU(y, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu", y.Len(), y, gate, up)
	C.t_swiglu(d.t, d.d, addr(y), addr(gate), addr(up), C.int64_t(y.Len()))
}

// SwiGLUBackward implements npu.Device.
func (d *device) SwiGLUBackward(dGate, dUp, dy, gate, up npu.Buffer) {
	d.check.SwiGLU("swiglu backward", dy.Len(), dGate, dUp, dy, gate, up)
	C.t_swiglu_backward(d.t, d.d, addr(dGate), addr(dUp), addr(dy), addr(gate), addr(up), C.int64_t(dy.Len()))
}

// Attention implements npu.Device.
func (d *device) Attention(out, stats, q, k, v npu.Buffer, s npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, s, h)
	d.check.OptionalLen("attention: stats", stats, check.StatsLen(q, h))
	C.t_attention(d.t, d.d, addr(out), addr(stats), addr(q), addr(k), addr(v), cSegments(s), cHeads(h))
}

// AttentionBackward implements npu.Device.
func (d *device) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, s npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, s, h)
	d.check.Attention(dOut, dq, dk, dv, s, h)
	d.check.Values("attention backward: dq", dq, q.Len())
	d.check.Len("attention backward: stats", stats, check.StatsLen(q, h))
	C.t_attention_backward(d.t, d.d, addr(dq), addr(dk), addr(dv), addr(dOut), addr(out), addr(stats), addr(q),
		addr(k), addr(v), cSegments(s), cHeads(h))
}

// CacheWrite implements npu.Device.
func (d *device) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	d.check.CacheWrite(cacheK, cacheV, k, v, slots, h)
	C.t_cache_write(d.t, d.d, addr(cacheK), addr(cacheV), addr(k), addr(v), addr(slots.Buffer),
		C.int32_t(slots.Len()), cHeads(h))
}

// AttentionCached implements npu.Device.
func (d *device) AttentionCached(out, q, cacheK, cacheV npu.Buffer, t *npu.Tables, h npu.Heads) {
	d.check.AttentionCached(out, q, cacheK, cacheV, t, h)
	C.t_attention_cached(d.t, d.d, addr(out), addr(q), addr(cacheK), addr(cacheV), C.tables{
		pages: addr(t.Pages.Buffer), rows: addr(t.Rows.Buffer), lens: addr(t.Lens.Buffer),
		blocks: addr(t.Blocks.Buffer), n: C.int32_t(t.Lens.Len()), stride: C.int32_t(t.Stride),
		longest: C.int32_t(t.Lens.Max),
	}, cHeads(h))
}

// SoftmaxMax implements npu.Device.
func (d *device) SoftmaxMax(max, logits npu.Buffer, n int, invTemp float32) {
	cols := d.check.SoftmaxMax(max, logits, n)
	C.t_softmax_max(d.t, d.d, addr(max), addr(logits), C.int32_t(n), C.int32_t(cols), C.float(invTemp))
}

// SoftmaxSum implements npu.Device.
func (d *device) SoftmaxSum(sums, max, logits npu.Buffer, targets npu.Ints, first int, invTemp float32, add bool) {
	cols := d.check.SoftmaxSum(sums, max, logits, targets, first)
	C.t_softmax_sum(d.t, d.d, addr(sums), addr(max), addr(logits), addr(targets.Buffer),
		C.int32_t(targets.Len()), C.int32_t(cols), C.int32_t(first), C.float(invTemp), cBool(add))
}

// SoftmaxFinish implements npu.Device.
func (d *device) SoftmaxFinish(logp, entropy, stats, sums, max npu.Buffer, n int) {
	d.check.SoftmaxFinish(logp, entropy, stats, sums, max, n)
	C.t_softmax_finish(d.t, d.d, addr(logp), addr(entropy), addr(stats), addr(sums), addr(max), C.int32_t(n))
}

// SoftmaxBackward implements npu.Device.
func (d *device) SoftmaxBackward(dLogits, logits, dLogp, stats npu.Buffer, targets npu.Ints, first int,
	invTemp float32) {
	cols := d.check.SoftmaxBackward(dLogits, logits, dLogp, stats, targets, first)
	C.t_softmax_backward(d.t, d.d, addr(dLogits), addr(logits), addr(dLogp), addr(stats), addr(targets.Buffer),
		C.int32_t(targets.Len()), C.int32_t(cols), C.int32_t(first), C.float(invTemp))
}

// Sample implements npu.Device.
func (d *device) Sample(ids, logp, logits npu.Buffer, vocab int, params npu.Params) {
	d.check.Sample(ids, logp, logits, vocab, params)
	C.t_sample(d.t, d.d, addr(ids), addr(logp), addr(logits), C.int32_t(params.N), C.int32_t(vocab),
		addr(params.Buffer))
}

// AdamW implements npu.Device.
func (d *device) AdamW(updates []npu.Update, p npu.AdamWParams) {
	d.check.AdamW(updates)
	list := d.updates[:0]
	for i := range updates {
		u := &updates[i]
		list = append(list, C.update{w: addr(u.W), copy: addr(u.Copy), g: cSums(u.G), m: addr(u.M),
			v: addr(u.V), n: C.int64_t(u.W.Len()), decay: cBool(u.Decay)})
	}
	d.updates = list
	C.t_adamw(d.t, d.d, unsafe.SliceData(list), C.int32_t(len(list)), C.easyrl_adamw_params{
		lr: C.float(p.LR), beta1: C.float(p.Beta1), beta2: C.float(p.Beta2), eps: C.float(p.Eps),
		weight_decay: C.float(p.WeightDecay), grad_scale: C.float(p.GradScale), step: C.int32_t(p.Step),
	})
}

// SumSquares implements npu.Device.
func (d *device) SumSquares(sums []float64, x []npu.Buffer) error {
	d.check.OutsideCapture("wait")
	d.check.SumSquares(sums, x)
	list := d.values[:0]
	for _, b := range x {
		list = append(list, C.values{data: addr(b), n: C.int64_t(b.Len())})
	}
	d.values = list
	C.t_sum_squares(d.t, d.d, (*C.double)(unsafe.SliceData(sums)), unsafe.SliceData(list), C.int32_t(len(list)))
	return d.Sync()
}

// SumSquaresExact implements npu.Device. The C call waits for the queue, so d.squares holds
// the results when it returns. Sync then returns the queue's failure.
func (d *device) SumSquaresExact(squares []npu.Squares, g []npu.Sums) error {
	d.check.OutsideCapture("wait")
	d.check.SumSquaresExact(squares, g)
	list := d.gradients[:0]
	for i := range g {
		list = append(list, C.gradient{s: cSums(g[i]), n: C.int64_t(g[i].Len())})
	}
	d.gradients = list
	d.squares = slices.Grow(d.squares[:0], len(g))[:len(g)]
	C.t_sum_squares_exact(d.t, d.d, unsafe.SliceData(d.squares), unsafe.SliceData(list), C.int32_t(len(list)))
	for i := range squares {
		for j, word := range d.squares[i].sum.words {
			squares[i].Sum[j] = uint64(word)
		}
		squares[i].Worst = float32(d.squares[i].worst)
	}
	return d.Sync()
}
