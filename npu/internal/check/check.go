// Package check panics if the buffers of a kernel call do not fit: their lengths, types and
// address spaces, and the bounds of indices. Such a call is a programmer's error, unlike the
// failures that a device records. All devices check here before they touch memory.
package check

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/npu"
)

func fail(format string, args ...any) { panic("npu: " + fmt.Sprintf(format, args...)) }

// Device checks the kernel calls of one device. Its owner's goroutine calls it.
type Device struct {
	Name      string // of the device, for messages
	Space     *npu.Space
	MatrixLen func(rows, cols int) int

	capturing bool
	used      map[*npu.Allocation]bool // by the capture, unless nil
}

// Capture calls record and returns the memory that its kernels use, if asked to. Outside panics
// meanwhile.
func (d *Device) Capture(record func(), used bool) map[*npu.Allocation]bool {
	d.Outside("capture")
	d.capturing = true
	if used {
		d.used = map[*npu.Allocation]bool{}
	}
	defer func() { d.capturing, d.used = false, nil }()
	record()
	return d.used
}

// Outside requires that no kernels are being captured.
func (d *Device) Outside(what string) {
	if d.capturing {
		fail("%s in a capture of kernels (device %s)", what, d.Name)
	}
}

// Buffer requires n values of a type in b. With optional, b may also be none.
func (d *Device) Buffer(what string, b npu.Buffer, dtype npu.DType, n int, optional bool) {
	if b.IsNil() && (n == 0 || optional) {
		return
	}
	switch {
	case b.Len() != n:
		fail("%s: %d values, expected %d", what, b.Len(), n)
	case b.DType() != dtype:
		fail("%s: values are %s, expected %s", what, b.DType(), dtype)
	case b.Space() != d.Space:
		fail("%s: buffer belongs to %s, expected one of %s (device %s)", what, b.Space(), d.Space, d.Name)
	case b.Freed():
		fail("%s: memory is free (device %s)", what, d.Name)
	}
	if d.used != nil {
		d.used[b.Allocation()] = true
	}
}

// Len requires n values of float32 in b. With optional, b may also be none.
func (d *Device) Len(what string, b npu.Buffer, n int, optional bool) {
	d.Buffer(what, b, npu.Float32, n, optional)
}

// Own requires b to be in the device's space. Its type does not matter.
func (d *Device) Own(what string, b npu.Buffer) { d.Buffer(what, b, b.DType(), b.Len(), true) }

// Copy requires two buffers of one length and type.
func (d *Device) Copy(dst, src npu.Buffer) {
	d.Own("copy: source", src)
	d.Buffer("copy: destination", dst, src.DType(), src.Len(), false)
}

// same requires lengths to be equal.
func same(what string, got, want int) {
	if got != want {
		fail("%s: %d values, expected %d", what, got, want)
	}
}

// Alloc rejects a negative number of values.
func Alloc(dtype npu.DType, n int, purpose npu.Purpose, device string) error {
	if n < 0 {
		return fmt.Errorf("allocate %d values of %s for %s on %s: expected at least 0", n, dtype, purpose, device)
	}
	return nil
}

// Matrix requires a matrix to have its layout's length.
func (d *Device) Matrix(what string, m npu.Matrix) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
	d.Len(what, m.Buffer, d.MatrixLen(m.Rows, m.Cols), false)
}

// Host requires m in its layout and Rows·Cols host values.
func (d *Device) Host(what string, m npu.Matrix, host []float32) {
	d.Matrix(what, m)
	same(what, len(host), m.Rows*m.Cols)
}

// Indices requires n indices in [0, limit), or any number if n is negative.
func (d *Device) Indices(what string, l npu.Ints, n, limit int) {
	if n < 0 {
		n = l.Len()
	}
	d.Buffer(what, l.Buffer, npu.Int32, n, false)
	if n > 0 && (l.Min < 0 || int(l.Max) >= limit) {
		fail("%s: values from %d to %d, expected 0 to %d", what, l.Min, l.Max, limit-1)
	}
}

// Embed checks a lookup.
func (d *Device) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.Matrix("embed", table)
	d.Len("embed: y", y, ids.Len()*table.Cols, false)
	d.Indices("embed: ids", ids, -1, table.Rows)
}

// EmbedBackward checks the operands of the gradient of an embedding.
func (d *Device) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, t *npu.Tokens, format npu.FixedPoint) {
	n := t.IDs.Len()
	d.MatrixSums("embed backward", dTable)
	d.Len("embed backward: dy", dy, n*dTable.Cols, false)
	d.Indices("embed backward: ids", t.IDs, n, dTable.Rows)
	d.Buffer("embed backward: first rows", t.Firsts.Buffer, npu.Int32, t.Firsts.Len(), false)
	d.Buffer("embed backward: next rows", t.Next.Buffer, npu.Int32, n, false)
	formatOf("embed backward", format)
}

// Linear checks the operands of a product with w over t rows. in has Cols values per
// row, out has Rows.
func (d *Device) Linear(what string, out, in npu.Buffer, w npu.Matrix, bias npu.Buffer, t int) {
	d.Matrix(what, w)
	d.Len(what, in, t*w.Cols, false)
	d.Len(what, out, t*w.Rows, false)
	d.Len(what, bias, w.Rows, true)
}

// Sums requires n sums and their mark. With optional, s may also be none.
func (d *Device) Sums(what string, s npu.Sums, n int, optional bool) {
	if optional && s.IsNil() {
		return
	}
	d.Buffer(what, s.Buffer, npu.Int64, n, false)
	d.Buffer(what, s.Mark, npu.Int64, 1, false)
}

// MatrixSums requires sums to have the length of their matrix's layout.
func (d *Device) MatrixSums(what string, m npu.MatrixSums) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: sums of a matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
	d.Sums(what, m.Sums, d.MatrixLen(m.Rows, m.Cols), false)
}

// Leaves requires leaves in a valid format.
func (d *Device) Leaves(what string, l *npu.Leaves) {
	d.Indices(what, l.Ends, -1, l.Rows+1)
	formatOf(what, l.FixedPoint)
}

func formatOf(what string, f npu.FixedPoint) {
	if !(f.Scale >= 1 && f.Scale <= math.MaxFloat32) || math.Float32bits(f.Scale)<<9 != 0 {
		fail("%s: scale is %v, expected a power of two of at least 1", what, f.Scale)
	}
	if !(f.Limit > 0 && f.Limit <= 1<<62) {
		fail("%s: limit is %v, expected more than 0 and at most 2^62", what, f.Limit)
	}
}

// LinearSums checks the operands of the gradient of a weight.
func (d *Device) LinearSums(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	const what = "linear backward weight"
	d.MatrixSums(what, dw)
	d.Sums(what, dBias, dw.Rows, true)
	d.Leaves(what, l)
	d.Len(what, x, l.Rows*dw.Cols, false)
	d.Len(what, dy, l.Rows*dw.Rows, false)
}

// Products checks the operands of a gradient with respect to an input.
func (d *Device) Products(dx npu.Buffer, products []npu.Product, t int) {
	const what = "linear backward input"
	if len(products) == 0 {
		fail("%s: no products, expected at least 1", what)
	}
	blocks := func(p *npu.Product) int { return (p.W.Rows + p.Block - 1) / p.Block }
	for i := range products {
		p := &products[i]
		if p.Block <= 0 {
			fail("%s: block of product %d is %d, expected at least 1", what, i, p.Block)
		}
		same("linear backward input: columns", p.W.Cols, products[0].W.Cols)
		same("linear backward input: blocks", blocks(p), blocks(&products[0]))
		d.Linear(what, p.DY, dx, p.W, npu.Buffer{}, t)
	}
}

// logits checks n rows of logits and returns their length.
func (d *Device) logits(what string, logits npu.Buffer, n int) int {
	if n == 0 {
		d.Len(what, logits, 0, false)
		return 0
	}
	d.Len(what, logits, logits.Len()/n*n, false)
	return logits.Len() / n
}

// SoftmaxMax checks the operands of SoftmaxMax and returns the length of the rows of logits.
func (d *Device) SoftmaxMax(max, logits npu.Buffer, n int) int {
	d.Len("softmax max: max", max, n, false)
	return d.logits("softmax max: logits", logits, n)
}

// SoftmaxFold checks the operands of SoftmaxFold and returns the length of the rows of
// logits. Targets may be outside their columns.
func (d *Device) SoftmaxFold(folds, scores, max, logits npu.Buffer, targets npu.Ints, first int) int {
	n := targets.Len()
	firstColumn("softmax fold", first)
	d.Len("softmax fold: folds", folds, n*32, false)
	d.Len("softmax fold: scores", scores, n, false)
	d.Len("softmax fold: max", max, n, false)
	d.Buffer("softmax fold: targets", targets.Buffer, npu.Int32, n, false)
	return d.logits("softmax fold: logits", logits, n)
}

func firstColumn(what string, first int) {
	if first < 0 || first%npu.MatrixBlock != 0 {
		fail("%s: first column is %d, expected a multiple of %d", what, first, npu.MatrixBlock)
	}
}

// SoftmaxFinish checks the operands of SoftmaxFinish.
func (d *Device) SoftmaxFinish(logp, entropy, stats, folds, scores, max npu.Buffer, n int) {
	d.Len("softmax finish: logp", logp, n, false)
	d.Len("softmax finish: entropy", entropy, n, false)
	d.Len("softmax finish: scores", scores, n, false)
	d.Len("softmax finish: max", max, n, false)
	d.Len("softmax finish: stats", stats, 2*n, false)
	d.Len("softmax finish: folds", folds, 32*n, false)
}

// SoftmaxBackward checks the operands of SoftmaxBackward and returns the length of the
// rows of logits.
func (d *Device) SoftmaxBackward(logits, dLogp, stats npu.Buffer, targets npu.Ints, first int) int {
	n := targets.Len()
	firstColumn("softmax backward", first)
	d.Len("softmax backward: dLogp", dLogp, n, false)
	d.Len("softmax backward: stats", stats, 2*n, false)
	d.Buffer("softmax backward: targets", targets.Buffer, npu.Int32, n, false)
	return d.logits("softmax backward: logits", logits, n)
}

// AdamW checks the operands of updates.
func (d *Device) AdamW(updates []npu.Update) {
	for i := range updates {
		u := &updates[i]
		d.Own("adamw: weight", u.W)
		d.Sums("adamw: gradient", u.G, u.W.Len(), false)
		d.Len("adamw: weight", u.W, u.W.Len(), false)
		d.Len("adamw: first moment", u.M, u.W.Len(), false)
		d.Len("adamw: second moment", u.V, u.W.Len(), false)
	}
}

// SumSquares checks the operands of SumSquares.
func (d *Device) SumSquares(sums []float64, x []npu.Buffer) {
	same("sum of squares: results", len(sums), len(x))
	for i := range x {
		d.Len("sum of squares", x[i], x[i].Len(), false)
	}
}

// SumSquaresExact checks the operands of SumSquaresExact.
func (d *Device) SumSquaresExact(sums []npu.Squares, g []npu.Sums) {
	same("exact sum of squares: results", len(sums), len(g))
	for i := range g {
		d.Sums("exact sum of squares", g[i], g[i].Len(), true)
	}
}

// Rows checks GatherRows and ScatterAddRows: rows index many; some has a row of cols values
// for each index.
func (d *Device) Rows(what string, some, many npu.Buffer, rows npu.Ints, cols int) {
	if cols <= 0 {
		fail("%s: row length is %d, expected at least 1", what, cols)
	}
	d.Len(what, some, rows.Len()*cols, false)
	d.Len(what, many, many.Len(), false)
	d.Indices(what, rows, -1, many.Len()/cols)
}

// Sample checks logits of params.N rows and their results.
func (d *Device) Sample(ids, logp, logits npu.Buffer, vocab int, params npu.Params) {
	d.Len("sample: logits", logits, params.N*vocab, false)
	d.Buffer("sample: ids", ids, npu.Int32, params.N, false)
	d.Len("sample: logp", logp, params.N, false)
	d.Buffer("sample: params", params.Buffer, npu.Int32, 5*params.N, false)
}

// SetInts checks the operands of SetInts.
func (d *Device) SetInts(y npu.Buffer, at, x npu.Ints) {
	d.Buffer("set ints: y", y, npu.Int32, y.Len(), false)
	d.Indices("set ints: indices", at, -1, y.Len())
	d.Buffer("set ints: x", x.Buffer, npu.Int32, at.Len(), false)
}

// NormLinear checks the operands of NormLinear.
func (d *Device) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int) {
	d.Norm("norm linear", weight, t, norm, x)
	for i := range outputs {
		o := &outputs[i]
		d.Linear("norm linear", o.Y, norm, o.W, o.Bias, t)
	}
}

// SumPanels checks the operands of SumPanels.
func (d *Device) SumPanels(sums []uint64, matrices []npu.Matrix) {
	panels := 0
	for _, m := range matrices {
		if m.Cols == 0 && m.Rows > 0 {
			d.Len("sum panels", m.Buffer, m.Rows, false)
			panels++
			continue
		}
		d.Matrix("sum panels", m)
		panels += (m.Rows + npu.MatrixBlock - 1) / npu.MatrixBlock
	}
	same("sum panels: sums", len(sums), panels)
}

// Norm checks rows of len(weight) values.
func (d *Device) Norm(what string, weight npu.Buffer, t int, rows ...npu.Buffer) {
	d.Len(what, weight, weight.Len(), false)
	for _, b := range rows {
		d.Len(what, b, t*weight.Len(), false)
	}
}

// Rope checks x [T, heads, dim] against positions and the table's rows.
func (d *Device) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int) {
	if dim <= 0 || dim%2 != 0 {
		fail("rope: head dimension is %d, expected an even number", dim)
	}
	d.Len("rope: x", x, positions.Len()*heads*dim, false)
	d.Len("rope: table", table, table.Len(), false)
	d.Indices("rope: positions", positions, -1, table.Len()/dim)
}

// SwiGLU checks buffers of n values.
func (d *Device) SwiGLU(what string, n int, buffers ...npu.Buffer) {
	for _, b := range buffers {
		d.Len(what, b, n, false)
	}
}
