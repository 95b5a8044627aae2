// Package check panics if the shapes of a kernel call do not fit. Such a call is a
// programmer's error, unlike the failures that a device records. All devices check
// shapes here before they touch memory.
package check

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/npu"
)

func fail(format string, args ...any) { panic("npu: " + fmt.Sprintf(format, args...)) }

// Len requires n values in b. With optional, b may also be none.
func Len(what string, b npu.Buffer, n int, optional bool) {
	if b.Len() != n && (!optional || !b.IsNil()) {
		fail("%s: %d values, expected %d", what, b.Len(), n)
	}
}

// Same requires lengths to be equal.
func Same(what string, got, want int) {
	if got != want {
		fail("%s: %d values, expected %d", what, got, want)
	}
}

// Matrix requires a matrix to have its layout's length.
func Matrix(what string, m npu.Matrix, matrixLen func(rows, cols int) int) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
	Len(what, m.Buffer, matrixLen(m.Rows, m.Cols), false)
}

// Indices requires every index to be in [0, n).
func Indices(what string, indices []int32, n int) {
	for i, x := range indices {
		if x < 0 || int(x) >= n {
			fail("%s: entry %d is %d, expected less than %d", what, i, x, n)
		}
	}
}

// Linear checks the operands of a product with w over t rows. in has Cols values per
// row, out has Rows.
func Linear(what string, out, in npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, matrixLen func(rows, cols int) int) {
	Matrix(what, w, matrixLen)
	if in.Len() != t*w.Cols { // format the message only on failure: this runs at every kernel call
		Len(what+": values of Cols", in, t*w.Cols, false)
	}
	if out.Len() != t*w.Rows {
		Len(what+": values of Rows", out, t*w.Rows, false)
	}
	if bias.Len() != w.Rows {
		Len(what+": bias", bias, w.Rows, true)
	}
}

// Sums requires n sums and their mark. With optional, s may also be none.
func Sums(what string, s npu.Sums, n int, optional bool) {
	if optional && s.IsNil() {
		return
	}
	Len(what, s.Buffer, 2*n, false)
	Len(what+": mark", s.Mark, 2, false)
}

// MatrixSums requires sums to have the length of their matrix's layout.
func MatrixSums(what string, m npu.MatrixSums, matrixLen func(rows, cols int) int) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: sums of a matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
	Sums(what, m.Sums, matrixLen(m.Rows, m.Cols), false)
}

// Leaves requires leaves of t rows in a valid format.
func Leaves(what string, l *npu.Leaves, t int) {
	Same(what+": rows of leaves", l.Rows(), t)
	last := int32(0)
	for i, end := range l.Ends {
		if end < last {
			fail("%s: leaf %d ends at row %d, expected at least %d", what, i, end, last)
		}
		last = end
	}
	if !(l.Scale >= 1 && l.Scale <= math.MaxFloat32) || math.Float32bits(l.Scale)<<9 != 0 {
		fail("%s: scale is %v, expected a power of two of at least 1", what, l.Scale)
	}
	if !(l.Limit > 0 && l.Limit <= 1<<62) {
		fail("%s: limit is %v, expected more than 0 and at most 2^62", what, l.Limit)
	}
}

// LinearSums checks the operands of the gradient of a weight.
func LinearSums(what string, dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves, matrixLen func(rows, cols int) int) {
	MatrixSums(what, dw, matrixLen)
	Sums(what+": bias", dBias, dw.Rows, true)
	t := l.Rows()
	Leaves(what, l, t)
	Len(what+": values of Cols", x, t*dw.Cols, false)
	Len(what+": values of Rows", dy, t*dw.Rows, false)
}

// Products checks the operands of a gradient with respect to an input.
func Products(what string, dx npu.Buffer, products []npu.Product, t int, matrixLen func(rows, cols int) int) {
	if len(products) == 0 {
		fail("%s: no products, expected at least 1", what)
	}
	blocks := func(p *npu.Product) int { return (p.W.Rows + p.Block - 1) / p.Block }
	for i := range products {
		p := &products[i]
		if p.Block <= 0 {
			fail("%s: block of product %d is %d, expected at least 1", what, i, p.Block)
		}
		Same(what+": columns", p.W.Cols, products[0].W.Cols)
		Same(what+": blocks", blocks(p), blocks(&products[0]))
		Linear(what, p.DY, dx, p.W, npu.Buffer{}, t, matrixLen)
	}
}

// Softmax checks n rows of logits and returns their length.
func Softmax(what string, logits npu.Buffer, n int) int {
	if n == 0 {
		Len(what+": logits", logits, 0, false)
		return 0
	}
	Len(what+": logits", logits, logits.Len()/n*n, false)
	return logits.Len() / n
}

// SoftmaxFold checks the operands of SoftmaxFold and returns the length of the rows of
// logits. Targets may be outside their columns.
func SoftmaxFold(folds, scores, max, logits npu.Buffer, targets []int32, first int) int {
	n := len(targets)
	firstColumn("softmax fold", first)
	Len("softmax fold: folds", folds, n*32, false)
	Len("softmax fold: scores", scores, n, false)
	Len("softmax fold: max", max, n, false)
	return Softmax("softmax fold", logits, n)
}

func firstColumn(what string, first int) {
	if first < 0 || first%npu.MatrixBlock != 0 {
		fail("%s: first column is %d, expected a multiple of %d", what, first, npu.MatrixBlock)
	}
}

// SoftmaxFinish checks the operands of SoftmaxFinish.
func SoftmaxFinish(logp, entropy, stats, folds, scores, max npu.Buffer, n int) {
	for _, b := range []npu.Buffer{logp, entropy, scores, max} {
		Len("softmax finish", b, n, false)
	}
	Len("softmax finish: stats", stats, 2*n, false)
	Len("softmax finish: folds", folds, 32*n, false)
}

// SoftmaxBackward checks the operands of SoftmaxBackward and returns the length of the
// rows of logits.
func SoftmaxBackward(logits, dLogp, stats npu.Buffer, targets []int32, first int) int {
	n := len(targets)
	firstColumn("softmax backward", first)
	Len("softmax backward: dLogp", dLogp, n, false)
	Len("softmax backward: stats", stats, 2*n, false)
	return Softmax("softmax backward", logits, n)
}

// AdamW checks the operands of an update.
func AdamW(w npu.Buffer, g npu.Sums, m, v npu.Buffer) {
	Sums("adamw", g, w.Len(), false)
	Len("adamw", m, w.Len(), false)
	Len("adamw", v, w.Len(), false)
}

// Rows checks the indices rows, which select some from many, both in rows of cols
// values.
func Rows(what string, some, many npu.Buffer, rows []int32, cols int) {
	if cols <= 0 {
		fail("%s: row length is %d, expected at least 1", what, cols)
	}
	Len(what, some, len(rows)*cols, false)
	Indices(what, rows, many.Len()/cols)
}

// Sample checks logits of len(params) rows.
func Sample(ids []int32, logp []float32, logits npu.Buffer, vocab int, params []npu.SampleParams) {
	Len("sample: logits", logits, len(params)*vocab, false)
	Same("sample: ids", len(ids), len(params))
	Same("sample: logp", len(logp), len(params))
}

// Norm checks rows of len(weight) values.
func Norm(what string, weight npu.Buffer, t int, rows ...npu.Buffer) {
	for _, b := range rows {
		Len(what, b, t*weight.Len(), false)
	}
}

// Rope checks x [T, heads, dim] against positions and the table's rows.
func Rope(x, table npu.Buffer, positions []int32, heads, dim int) {
	if dim <= 0 || dim%2 != 0 {
		fail("rope: head dimension is %d, expected an even number", dim)
	}
	Len("rope: x", x, len(positions)*heads*dim, false)
	Indices("rope: positions", positions, table.Len()/dim)
}

// StatsLen returns the length of the statistics for q.
func StatsLen(q npu.Buffer, h npu.Heads) int { return q.Len() / h.Dim * 2 }

func heads(h npu.Heads) {
	if h.Q <= 0 || h.KV <= 0 || h.Dim <= 0 || h.Q%h.KV != 0 {
		fail("attention: %d query and %d key-value heads of %d, expected Q to be a multiple of KV", h.Q, h.KV, h.Dim)
	}
}

// Attention checks the operands of an attention. Segments must be within its rows,
// parents first.
func Attention(out, q, k, v npu.Buffer, segments []npu.Segment, h npu.Heads) {
	heads(h)
	t := q.Len() / (h.Q * h.Dim)
	Len("attention: q", q, t*h.Q*h.Dim, false)
	Len("attention: out", out, q.Len(), false)
	Len("attention: k", k, t*h.KV*h.Dim, false)
	Len("attention: v", v, t*h.KV*h.Dim, false)
	for i, s := range segments {
		if s.Start < 0 || s.Len < 0 || int(s.Start)+int(s.Len) > t {
			fail("attention: segment %d is rows %d to %d, expected at most %d", i, s.Start, s.Start+s.Len, t)
		}
		if s.Parent < -1 || int(s.Parent) >= i {
			fail("attention: segment %d has parent %d, expected an earlier segment or -1", i, s.Parent)
		}
	}
}

// Cache checks that both halves of a cache consist of whole pages.
func Cache(cacheK, cacheV npu.Buffer, h npu.Heads) {
	heads(h)
	Len("cache: values", cacheV, cacheK.Len(), false)
	if cacheK.Len()%(npu.PageSize*h.KV*h.Dim) != 0 {
		fail("cache: %d values, expected a multiple of the page size %d", cacheK.Len(), npu.PageSize*h.KV*h.Dim)
	}
}

// Tables checks that tables, with stride pages per row, lists valid pages for the
// positions in lens.
func Tables(tables []int32, stride int, lens []int32, pages int) {
	Same("cached attention: tables", len(tables), stride*len(lens))
	for i, n := range lens {
		used := (int(n) + npu.PageSize - 1) / npu.PageSize
		if n < 1 || used > stride {
			fail("cached attention: length %d of row %d, expected 1 to %d", n, i, stride*npu.PageSize)
		}
		Indices("cached attention: tables", tables[i*stride:i*stride+used], pages)
	}
}
