//go:build cgo

package ctable

// #include "table.h"
import "C"

import (
	"unsafe"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

func at(b npu.Buffer) C.addr { return C.addr(b.Addr()) }

func floats(x []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(x))) }

func ints(x []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(x))) }

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func matrix(m npu.Matrix) C.matrix {
	return C.matrix{data: at(m.Buffer), rows: C.int32_t(m.Rows), cols: C.int32_t(m.Cols)}
}

func sums(s npu.Sums) C.sums { return C.sums{data: at(s.Buffer), mark: at(s.Mark)} }

func matrixSums(m npu.MatrixSums) C.matrix_sums {
	return C.matrix_sums{s: sums(m.Sums), rows: C.int32_t(m.Rows), cols: C.int32_t(m.Cols)}
}

func fixedPoint(l *npu.Leaves) C.easyrl_fixed_point {
	return C.easyrl_fixed_point{scale: C.float(l.Scale), limit: C.float(l.Limit)}
}

func shape(h npu.Heads) C.easyrl_heads {
	return C.easyrl_heads{q: C.int32_t(h.Q), kv: C.int32_t(h.KV), dim: C.int32_t(h.Dim)}
}

func segment(s []npu.Segment) *C.easyrl_segment {
	return (*C.easyrl_segment)(unsafe.Pointer(unsafe.SliceData(s)))
}

// matrixKernels are the kernels over matrices.
type matrixKernels struct{ *handle }

// PackMatrix implements npu.Device.
func (d matrixKernels) PackMatrix(m npu.Matrix, src []float32) {
	check.Matrix("pack matrix", m, d.MatrixLen)
	check.Same("pack matrix", len(src), m.Rows*m.Cols)
	C.t_pack_matrix(d.t, d.d, matrix(m), floats(src))
}

// UnpackMatrix implements npu.Device.
func (d matrixKernels) UnpackMatrix(dst []float32, m npu.Matrix) {
	check.Matrix("unpack matrix", m, d.MatrixLen)
	check.Same("unpack matrix", len(dst), m.Rows*m.Cols)
	C.t_unpack_matrix(d.t, d.d, floats(dst), matrix(m))
}

// Embed implements npu.Device.
func (d matrixKernels) Embed(y npu.Buffer, table npu.Matrix, ids []int32) {
	check.Matrix("embed", table, d.MatrixLen)
	check.Len("embed: y", y, len(ids)*table.Cols, false)
	check.Indices("embed: ids", ids, table.Rows)
	C.t_embed(d.t, d.d, at(y), matrix(table), ints(ids), C.int32_t(len(ids)))
}

// EmbedBackward implements npu.Device.
func (d matrixKernels) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, ids []int32, l *npu.Leaves) {
	check.MatrixSums("embed backward", dTable, d.MatrixLen)
	check.Len("embed backward: dy", dy, len(ids)*dTable.Cols, false)
	check.Indices("embed backward: ids", ids, dTable.Rows)
	check.Leaves("embed backward", l, len(ids))
	firsts, next := rowLists(ids, l.Ends)
	C.t_embed_backward(d.t, d.d, matrixSums(dTable), at(dy), ints(ids), ints(firsts), ints(next), C.int32_t(len(firsts)), fixedPoint(l))
}

// rowLists lists, for each leaf and each token id in it, the rows with that id: next[t]
// is the next row or -1. firsts are the first rows of all lists.
func rowLists(ids, ends []int32) (firsts, next []int32) {
	next = make([]int32, len(ids))
	last, start := map[int32]int{}, 0
	for _, end := range ends {
		clear(last)
		for t := start; t < int(end); t++ {
			next[t] = -1
			if before, found := last[ids[t]]; found {
				next[before] = int32(t)
			} else {
				firsts = append(firsts, int32(t))
			}
			last[ids[t]] = t
		}
		start = int(end)
	}
	return firsts, next
}

// Linear implements npu.Device.
func (d matrixKernels) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, add bool) {
	check.Linear("linear", y, x, w, bias, t, d.MatrixLen)
	C.t_linear(d.t, d.d, at(y), at(x), matrix(w), at(bias), C.int32_t(t), flag(add))
}

// LinearBackwardInput implements npu.Device.
func (d matrixKernels) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	check.Products("linear backward input", dx, products, t, d.MatrixLen)
	var buffer [4]C.product
	list := buffer[:0]
	for i := range products {
		p := &products[i]
		list = append(list, C.product{dy: at(p.DY), w: matrix(p.W), block: C.int32_t(p.Block)})
	}
	C.t_linear_backward_input(d.t, d.d, at(dx), unsafe.SliceData(list), C.int32_t(len(list)), C.int32_t(t), flag(add))
}

// LinearBackwardWeight implements npu.Device.
func (d matrixKernels) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	check.LinearSums("linear backward weight", dw, dBias, dy, x, l, d.MatrixLen)
	C.t_linear_backward_weight(d.t, d.d, matrixSums(dw), sums(dBias), at(dy), at(x), ints(l.Ends), C.int32_t(len(l.Ends)), fixedPoint(l))
}

// rowKernels are the kernels over rows and single values.
type rowKernels struct{ *handle }

// Add implements npu.Device.
func (d rowKernels) Add(y, x npu.Buffer) {
	check.Len("add", x, y.Len(), false)
	C.t_add(d.t, d.d, at(y), at(x), C.int64_t(y.Len()))
}

// GatherRows implements npu.Device.
func (d rowKernels) GatherRows(y, x npu.Buffer, rows []int32, cols int) {
	check.Rows("gather rows", y, x, rows, cols)
	C.t_gather_rows(d.t, d.d, at(y), at(x), ints(rows), C.int32_t(len(rows)), C.int32_t(cols))
}

// ScatterAddRows implements npu.Device.
func (d rowKernels) ScatterAddRows(y, x npu.Buffer, rows []int32, cols int) {
	check.Rows("scatter rows", x, y, rows, cols)
	C.t_scatter_add_rows(d.t, d.d, at(y), at(x), ints(rows), C.int32_t(len(rows)), C.int32_t(cols))
}

// RMSNorm implements npu.Device.
func (d rowKernels) RMSNorm(y, x, weight npu.Buffer, t int, eps float32) {
	check.Norm("rms norm", weight, t, y, x)
	C.t_rms_norm(d.t, d.d, at(y), at(x), at(weight), C.int32_t(t), C.int32_t(weight.Len()), C.float(eps))
}

// RMSNormBackward implements npu.Device.
func (d rowKernels) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, eps float32, add bool, l *npu.Leaves) {
	t := l.Rows()
	check.Leaves("rms norm backward", l, t)
	check.Norm("rms norm backward", weight, t*heads, dx, dy, x)
	check.Sums("rms norm backward: dWeight", dWeight, weight.Len(), false)
	C.t_rms_norm_backward(d.t, d.d, at(dx), sums(dWeight), at(dy), at(x), at(weight), C.int32_t(heads), C.int32_t(weight.Len()),
		C.float(eps), flag(add), ints(l.Ends), C.int32_t(len(l.Ends)), fixedPoint(l))
}

// Rope implements npu.Device.
func (d rowKernels) Rope(x, table npu.Buffer, positions []int32, heads, dim int, inverse bool) {
	check.Rope(x, table, positions, heads, dim)
	C.t_rope(d.t, d.d, at(x), at(table), ints(positions), C.int32_t(len(positions)), C.int32_t(heads), C.int32_t(dim), flag(inverse))
}

// SwiGLU implements npu.Device.
func (d rowKernels) SwiGLU(y, gate, up npu.Buffer) {
	check.Len("swiglu: gate", gate, y.Len(), false)
	check.Len("swiglu: up", up, y.Len(), false)
	C.t_swiglu(d.t, d.d, at(y), at(gate), at(up), C.int64_t(y.Len()))
}

// SwiGLUBackward implements npu.Device.
func (d rowKernels) SwiGLUBackward(dGate, dUp, dy, gate, up npu.Buffer) {
	for _, b := range []npu.Buffer{dGate, dUp, gate, up} {
		check.Len("swiglu backward", b, dy.Len(), false)
	}
	C.t_swiglu_backward(d.t, d.d, at(dGate), at(dUp), at(dy), at(gate), at(up), C.int64_t(dy.Len()))
}

// attentionKernels are attention, its backward pass and its cached form.
type attentionKernels struct{ *handle }

// Attention implements npu.Device.
func (d attentionKernels) Attention(out, stats, q, k, v npu.Buffer, segments []npu.Segment, h npu.Heads) {
	check.Attention(out, q, k, v, segments, h)
	check.Len("attention: stats", stats, check.StatsLen(q, h), true)
	C.t_attention(d.t, d.d, at(out), at(stats), at(q), at(k), at(v), segment(segments), C.int32_t(len(segments)), shape(h))
}

// AttentionBackward implements npu.Device.
func (d attentionKernels) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, segments []npu.Segment, h npu.Heads) {
	check.Attention(out, q, k, v, segments, h)
	check.Attention(dOut, dq, dk, dv, segments, h)
	check.Len("attention backward: dq", dq, q.Len(), false)
	check.Len("attention backward: stats", stats, check.StatsLen(q, h), false)
	C.t_attention_backward(d.t, d.d, at(dq), at(dk), at(dv), at(dOut), at(out), at(stats), at(q), at(k), at(v),
		segment(segments), C.int32_t(len(segments)), shape(h))
}

// CacheWrite implements npu.Device.
func (d attentionKernels) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots []int32, h npu.Heads) {
	check.Cache(cacheK, cacheV, h)
	check.Len("cache write: k", k, len(slots)*h.KV*h.Dim, false)
	check.Len("cache write: v", v, len(slots)*h.KV*h.Dim, false)
	check.Indices("cache write: slots", slots, cacheK.Len()/(h.KV*h.Dim))
	C.t_cache_write(d.t, d.d, at(cacheK), at(cacheV), at(k), at(v), ints(slots), C.int32_t(len(slots)), shape(h))
}

// AttentionCached implements npu.Device.
func (d attentionKernels) AttentionCached(out, q, cacheK, cacheV npu.Buffer, tables []int32, stride int, lens []int32, h npu.Heads) {
	check.Cache(cacheK, cacheV, h)
	check.Len("cached attention: q", q, len(lens)*h.Q*h.Dim, false)
	check.Len("cached attention: out", out, len(lens)*h.Q*h.Dim, false)
	check.Tables(tables, stride, lens, cacheK.Len()/(npu.PageSize*h.KV*h.Dim))
	C.t_attention_cached(d.t, d.d, at(out), at(q), at(cacheK), at(cacheV), ints(tables), C.int32_t(stride), ints(lens),
		C.int32_t(len(lens)), shape(h))
}

// vocabKernels are the kernels over distributions of the vocabulary.
type vocabKernels struct{ *handle }

// SoftmaxMax implements npu.Device.
func (d vocabKernels) SoftmaxMax(max, logits npu.Buffer, n int, invTemp float32) {
	cols := check.Softmax("softmax max", logits, n)
	check.Len("softmax max: max", max, n, false)
	C.t_softmax_max(d.t, d.d, at(max), at(logits), C.int32_t(n), C.int32_t(cols), C.float(invTemp))
}

// SoftmaxFold implements npu.Device.
func (d vocabKernels) SoftmaxFold(folds, scores, max, logits npu.Buffer, targets []int32, first int, invTemp float32) {
	cols := check.SoftmaxFold(folds, scores, max, logits, targets, first)
	C.t_softmax_fold(d.t, d.d, at(folds), at(scores), at(max), at(logits), ints(targets), C.int32_t(len(targets)), C.int32_t(cols),
		C.int32_t(first), C.float(invTemp))
}

// SoftmaxFinish implements npu.Device.
func (d vocabKernels) SoftmaxFinish(logp, entropy, stats, folds, scores, max npu.Buffer, n int) {
	check.SoftmaxFinish(logp, entropy, stats, folds, scores, max, n)
	C.t_softmax_finish(d.t, d.d, at(logp), at(entropy), at(stats), at(folds), at(scores), at(max), C.int32_t(n))
}

// SoftmaxBackward implements npu.Device.
func (d vocabKernels) SoftmaxBackward(logits, dLogp, stats npu.Buffer, targets []int32, first int, invTemp float32) {
	cols := check.SoftmaxBackward(logits, dLogp, stats, targets, first)
	C.t_softmax_backward(d.t, d.d, at(logits), at(dLogp), at(stats), ints(targets), C.int32_t(len(targets)), C.int32_t(cols),
		C.int32_t(first), C.float(invTemp))
}

// Sample implements npu.Device.
func (d vocabKernels) Sample(ids []int32, logp []float32, logits npu.Buffer, vocab int, params []npu.SampleParams) {
	check.Sample(ids, logp, logits, vocab, params)
	p := make([]C.easyrl_sample_params, len(params))
	for i, s := range params {
		p[i] = C.easyrl_sample_params{
			temperature: C.float(s.Temperature), top_p: C.float(s.TopP), min_p: C.float(s.MinP),
			top_k: C.int32_t(s.TopK), uniform: C.float(s.Uniform),
		}
	}
	C.t_sample(d.t, d.d, ints(ids), floats(logp), at(logits), C.int32_t(len(params)), C.int32_t(vocab), unsafe.SliceData(p))
}

// updateKernels are the optimizer's kernels.
type updateKernels struct{ *handle }

// AdamW implements npu.Device.
func (d updateKernels) AdamW(w npu.Buffer, g npu.Sums, m, v npu.Buffer, p npu.AdamWParams) {
	check.AdamW(w, g, m, v)
	C.t_adamw(d.t, d.d, at(w), sums(g), at(m), at(v), C.int64_t(w.Len()), C.easyrl_adamw_params{
		lr: C.float(p.LR), beta1: C.float(p.Beta1), beta2: C.float(p.Beta2), eps: C.float(p.Eps),
		weight_decay: C.float(p.WeightDecay), grad_scale: C.float(p.GradScale), step: C.int32_t(p.Step),
	})
}

// SumSquares implements npu.Device.
func (d updateKernels) SumSquares(x npu.Buffer) float64 {
	return float64(C.t_sum_squares(d.t, d.d, at(x), C.int64_t(x.Len())))
}

// SumSquaresExact implements npu.Device.
func (d updateKernels) SumSquaresExact(g npu.Sums) (sum npu.Wide, ok bool) {
	check.Sums("exact sum of squares", g, g.Len(), true)
	if g.IsNil() {
		return sum, true
	}
	var wide C.easyrl_wide
	ok = C.t_sum_squares_exact(d.t, d.d, &wide, sums(g), C.int64_t(g.Len())) != 0
	for i := range sum {
		sum[i] = uint64(wide.words[i])
	}
	return sum, ok
}
