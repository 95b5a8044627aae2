// Package check panics if the buffers of a kernel call do not fit: their lengths, types and
// address spaces, and the bounds of indices. Such a call is a programmer's error, unlike the
// failures that a device records. Every device calls this package before it touches memory.
//
// A parameter what names the kernel or the operand in the message of the panic. All lengths
// count values. A method named Optional… also accepts the zero Buffer, which stands for an
// operand that the caller left out.
package check

import (
	"fmt"
	"math"

	"github.com/easyrl/easyrl/npu"
)

func fail(format string, args ...any) { panic("npu: " + fmt.Sprintf(format, args...)) }

// Device checks the kernel calls of one device. Only the goroutine that uses the device may
// call its methods.
type Device struct {
	Name      string // device name in messages
	Space     *npu.Space
	Type      npu.DType                // of weights and activations
	MatrixLen func(rows, cols int) int // the device's MatrixLen

	capturing bool                     // record of Capture or CaptureUses is running
	used      map[*npu.Allocation]bool // memory of the buffers checked since CaptureUses began, else nil
}

// Capture calls record. OutsideCapture panics until record returns.
func (d *Device) Capture(record func()) {
	d.OutsideCapture("capture")
	d.capturing = true
	defer func() { d.capturing = false }()
	record()
}

// CaptureUses is Capture that also returns the memory that the kernels in record use.
func (d *Device) CaptureUses(record func()) map[*npu.Allocation]bool {
	used := map[*npu.Allocation]bool{}
	d.Capture(func() {
		d.used = used
		defer func() { d.used = nil }()
		record()
	})
	return used
}

// OutsideCapture requires that no kernels are being captured.
func (d *Device) OutsideCapture(what string) {
	if d.capturing {
		fail("%s in a capture of kernels (device %s)", what, d.Name)
	}
}

// Buffer requires b to hold n values of type dtype in live memory of the device's space. If n
// is 0, b may be the zero Buffer.
func (d *Device) Buffer(what string, b npu.Buffer, dtype npu.DType, n int) {
	if b.IsNil() && n == 0 {
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

// Len requires b to hold n float32 values (see Buffer).
func (d *Device) Len(what string, b npu.Buffer, n int) { d.Buffer(what, b, npu.Float32, n) }

// Values requires b to hold n weights or activations (see Buffer).
func (d *Device) Values(what string, b npu.Buffer, n int) { d.Buffer(what, b, d.Type, n) }

// Either requires b to hold n float32 values or n activations (see Buffer).
func (d *Device) Either(what string, b npu.Buffer, n int) {
	if b.DType() != d.Type {
		d.Len(what, b, n)
		return
	}
	d.Values(what, b, n)
}

// OptionalLen requires b to be the zero Buffer or to hold n float32 values.
func (d *Device) OptionalLen(what string, b npu.Buffer, n int) {
	if !b.IsNil() {
		d.Len(what, b, n)
	}
}

// Own requires b, of any type and length, to be live memory of the device's space.
func (d *Device) Own(what string, b npu.Buffer) { d.Buffer(what, b, b.DType(), b.Len()) }

// Copy requires both buffers to have the same length and type.
func (d *Device) Copy(dst, src npu.Buffer) {
	d.Own("copy: source", src)
	d.Buffer("copy: destination", dst, src.DType(), src.Len())
}

// Convert requires both buffers to have the same length, and types that Convert takes.
func (d *Device) Convert(y, x npu.Buffer) {
	d.Either("convert: source", x, x.Len())
	d.Either("convert: destination", y, x.Len())
}

// same requires got and want, two numbers of values, to be equal.
func same(what string, got, want int) {
	if got != want {
		fail("%s: %d values, expected %d", what, got, want)
	}
}

// Alloc returns an error if n, the number of values to allocate, is negative.
func Alloc(dtype npu.DType, n int, purpose npu.Purpose, device string) error {
	if n < 0 {
		return fmt.Errorf("allocate %d values of %s for %s on %s: expected at least 0", n, dtype, purpose, device)
	}
	return nil
}

// weights requires a matrix of weights to have the length of the device's layout.
func (d *Device) weights(what string, m npu.Matrix) {
	d.shape(what, m)
	d.Values(what, m.Buffer, d.MatrixLen(m.Rows, m.Cols))
}

// matrix requires a matrix of float32 values to have the length of the device's layout.
func (d *Device) matrix(what string, m npu.Matrix) {
	d.shape(what, m)
	d.Len(what, m.Buffer, d.MatrixLen(m.Rows, m.Cols))
}

func (d *Device) shape(what string, m npu.Matrix) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
}

// HostValues requires m to have its layout's length and host to have m.Rows·m.Cols values.
func (d *Device) HostValues(what string, m npu.Matrix, host []float32) {
	d.matrix(what, m)
	same(what, len(host), m.Rows*m.Cols)
}

// Indices requires all values of l to be in [0, limit).
func (d *Device) Indices(what string, l npu.Ints, limit int) {
	d.Buffer(what, l.Buffer, npu.Int32, l.Len())
	if l.Len() > 0 && (l.Min < 0 || int(l.Max) >= limit) {
		fail("%s: values from %d to %d, expected 0 to %d", what, l.Min, l.Max, limit-1)
	}
}

// Embed checks the operands of Embed.
func (d *Device) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.weights("embed", table)
	d.Len("embed: y", y, ids.Len()*table.Cols)
	d.Indices("embed: ids", ids, table.Rows)
}

// EmbedBackward checks the operands of EmbedBackward.
func (d *Device) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, t *npu.Tokens, format npu.FixedPoint) {
	n := t.IDs.Len()
	d.MatrixSums("embed backward", dTable)
	d.Len("embed backward: dy", dy, n*dTable.Cols)
	d.Indices("embed backward: ids", t.IDs, dTable.Rows)
	d.Indices("embed backward: rows", t.Rows, n)
	d.Buffer("embed backward: rows", t.Rows.Buffer, npu.Int32, n)
	d.Indices("embed backward: starts", t.Starts, n+1)
	fixedPoint("embed backward", format)
}

// Linear checks the operands of Linear.
func (d *Device) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	const what = "linear"
	d.weights(what, w)
	d.Values(what, x, t*w.Cols)
	d.Either(what, y, t*w.Rows)
	if !bias.IsNil() {
		d.Values(what, bias, w.Rows)
	}
	if start == npu.Fresh {
		return
	}
	d.Len(what, y, t*w.Rows)
	if !bias.IsNil() {
		fail("%s: a bias with start %d, expected start %d", what, start, npu.Fresh)
	}
}

// OptionalSums requires s to be the zero Sums or to hold n sums and their mark.
func (d *Device) OptionalSums(what string, s npu.Sums, n int) {
	if !s.IsNil() {
		d.Sums(what, s, n)
	}
}

// Sums requires s to hold n sums and their mark.
func (d *Device) Sums(what string, s npu.Sums, n int) {
	d.Buffer(what, s.Buffer, npu.Int64, n)
	d.Buffer(what, s.Mark, npu.Int64, 1)
}

// MatrixSums requires the sums of a matrix to have the length of the device's layout.
func (d *Device) MatrixSums(what string, m npu.MatrixSums) {
	if m.Rows <= 0 || m.Cols <= 0 {
		fail("%s: sums of a matrix [%d, %d], expected positive dimensions", what, m.Rows, m.Cols)
	}
	d.Sums(what, m.Sums, d.MatrixLen(m.Rows, m.Cols))
}

// Leaves requires the ends of leaves and units to be rows and the fixed-point format to be valid.
// Batch.Leaves has checked their order.
func (d *Device) Leaves(what string, l *npu.Leaves) {
	d.Indices(what, l.Ends, l.Rows+1)
	d.Indices(what, l.Units, l.Rows+1)
	fixedPoint(what, l.FixedPoint)
}

// fixedPoint checks Scale and Limit. The negated conditions also reject NaN.
func fixedPoint(what string, f npu.FixedPoint) {
	const signAndExponent = 9                                     // bits of a float32
	powerOfTwo := math.Float32bits(f.Scale)<<signAndExponent == 0 // its mantissa is 0
	if !(f.Scale >= 1 && f.Scale <= math.MaxFloat32) || !powerOfTwo {
		fail("%s: scale is %v, expected a power of two of at least 1", what, f.Scale)
	}
	if !(f.Limit > 0 && f.Limit <= 1<<62) {
		fail("%s: limit is %v, expected more than 0 and at most 2^62", what, f.Limit)
	}
}

// LinearSums checks the operands of LinearBackwardWeight.
func (d *Device) LinearSums(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	const what = "linear backward weight"
	d.MatrixSums(what, dw)
	d.OptionalSums(what, dBias, dw.Rows)
	d.Leaves(what, l)
	d.Values(what, x, l.Rows*dw.Cols)
	d.Values(what, dy, l.Rows*dw.Rows)
}

// Products checks the operands of LinearBackwardInput.
func (d *Device) Products(dx npu.Buffer, products []npu.Product, t int, add bool) {
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
		d.weights(what, p.W)
		d.Values(what, p.DY, t*p.W.Rows)
	}
	d.Either(what, dx, t*products[0].W.Cols)
	if add {
		d.Len(what, dx, dx.Len())
	}
}

// logits requires a whole number of values in each of n rows and returns that number, 0 if n
// is 0.
func (d *Device) logits(what string, logits npu.Buffer, n int) int {
	if n == 0 {
		d.Len(what, logits, 0)
		return 0
	}
	d.Len(what, logits, logits.Len()/n*n)
	return logits.Len() / n
}

// SoftmaxMax checks the operands of SoftmaxMax and returns the length of a row of logits.
func (d *Device) SoftmaxMax(max, logits npu.Buffer, n int) int {
	d.Len("softmax max: max", max, n)
	return d.logits("softmax max: logits", logits, n)
}

// SoftmaxSum checks the operands of SoftmaxSum and returns the length of a row of logits.
// The bounds of targets do not matter: a target may belong to the columns of another call.
func (d *Device) SoftmaxSum(sums, max, logits npu.Buffer, targets npu.Ints, first int) int {
	n := targets.Len()
	firstColumn("softmax sum", first)
	d.Buffer("softmax sum: sums", sums, npu.Int64, n*npu.SoftmaxSums)
	d.Len("softmax sum: max", max, n)
	d.Buffer("softmax sum: targets", targets.Buffer, npu.Int32, n)
	cols := d.logits("softmax sum: logits", logits, n)
	if first+cols > npu.MaxVocab {
		fail("softmax sum: %d columns, expected at most %d", first+cols, npu.MaxVocab)
	}
	return cols
}

func firstColumn(what string, first int) {
	if first < 0 || first%npu.MatrixBlock != 0 {
		fail("%s: first column is %d, expected a multiple of %d", what, first, npu.MatrixBlock)
	}
}

// SoftmaxFinish checks the operands of SoftmaxFinish.
func (d *Device) SoftmaxFinish(logp, entropy, stats, sums, max npu.Buffer, n int) {
	d.Len("softmax finish: logp", logp, n)
	d.Len("softmax finish: entropy", entropy, n)
	d.Len("softmax finish: max", max, n)
	d.Len("softmax finish: stats", stats, 2*n)
	d.Buffer("softmax finish: sums", sums, npu.Int64, npu.SoftmaxSums*n)
}

// SoftmaxBackward checks the operands of SoftmaxBackward and returns the length of a row of
// logits. The bounds of targets do not matter, as in SoftmaxSum.
func (d *Device) SoftmaxBackward(dLogits, logits, dLogp, stats npu.Buffer, targets npu.Ints, first int) int {
	n := targets.Len()
	d.Values("softmax backward: dLogits", dLogits, logits.Len())
	firstColumn("softmax backward", first)
	d.Len("softmax backward: dLogp", dLogp, n)
	d.Len("softmax backward: stats", stats, 2*n)
	d.Buffer("softmax backward: targets", targets.Buffer, npu.Int32, n)
	return d.logits("softmax backward: logits", logits, n)
}

// AdamW checks the operands of each update.
func (d *Device) AdamW(updates []npu.Update) {
	for i := range updates {
		u := &updates[i]
		d.Own("adamw: weight", u.W)
		d.Sums("adamw: gradient", u.G, u.W.Len())
		d.Len("adamw: weight", u.W, u.W.Len())
		if !u.Copy.IsNil() {
			d.Values("adamw: copy", u.Copy, u.W.Len())
		}
		d.Len("adamw: first moment", u.M, u.W.Len())
		d.Len("adamw: second moment", u.V, u.W.Len())
	}
}

// SumSquares checks the operands of SumSquares.
func (d *Device) SumSquares(sums []float64, x []npu.Buffer) {
	same("sum of squares: results", len(sums), len(x))
	for i := range x {
		d.Len("sum of squares", x[i], x[i].Len())
	}
}

// SumSquaresExact checks the operands of SumSquaresExact.
func (d *Device) SumSquaresExact(sums []npu.Squares, g []npu.Sums) {
	same("exact sum of squares: results", len(sums), len(g))
	for i := range g {
		d.OptionalSums("exact sum of squares", g[i], g[i].Len())
	}
}

// Rows checks the operands of GatherRows and ScatterAddRows. A row has cols values. rows are
// indices of rows of indexed; listed has one row for each index.
func (d *Device) Rows(what string, listed, indexed npu.Buffer, rows npu.Ints, cols int) {
	if cols <= 0 {
		fail("%s: row length is %d, expected at least 1", what, cols)
	}
	d.Len(what, listed, rows.Len()*cols)
	d.Len(what, indexed, indexed.Len())
	d.Indices(what, rows, indexed.Len()/cols)
}

// Sample checks the operands of Sample for params.N rows.
func (d *Device) Sample(ids, logp, logits npu.Buffer, vocab int, params npu.Params) {
	d.Len("sample: logits", logits, params.N*vocab)
	d.Buffer("sample: ids", ids, npu.Int32, params.N)
	d.Len("sample: logp", logp, params.N)
	d.Buffer("sample: params", params.Buffer, npu.Int32, 5*params.N)
}

// SetInts checks the operands of SetInts.
func (d *Device) SetInts(y npu.Buffer, at, x npu.Ints) {
	d.Buffer("set ints: y", y, npu.Int32, y.Len())
	d.Indices("set ints: indices", at, y.Len())
	d.Buffer("set ints: x", x.Buffer, npu.Int32, at.Len())
}

// NormLinear checks the operands of NormLinear.
func (d *Device) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int) {
	d.Norm(norm, x, weight, t)
	d.Len("norm linear: x", x, t*weight.Len())
	for i := range outputs {
		o := &outputs[i]
		d.Linear(o.Y, norm, o.W, o.Bias, t, npu.Fresh)
		d.Values("norm linear: y", o.Y, o.Y.Len())
	}
}

// SumPanels checks the operands of SumPanels.
func (d *Device) SumPanels(sums []uint64, matrices []npu.Matrix) {
	panels := 0
	for _, m := range matrices {
		if m.Cols == 0 && m.Rows > 0 {
			d.Len("sum panels", m.Buffer, m.Rows)
			panels++
			continue
		}
		d.matrix("sum panels", m)
		panels += (m.Rows + npu.MatrixBlock - 1) / npu.MatrixBlock
	}
	same("sum panels: sums", len(sums), panels)
}

// Norm checks the operands of RMSNorm.
func (d *Device) Norm(y, x, weight npu.Buffer, t int) {
	const what = "rms norm"
	d.Values(what, weight, weight.Len())
	d.Values(what, y, t*weight.Len())
	d.Either(what, x, t*weight.Len())
}

// NormBackward checks the operands of RMSNormBackward.
func (d *Device) NormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int, l *npu.Leaves) {
	const what = "rms norm backward"
	d.Leaves(what, l)
	d.Norm(dy, x, weight, l.Rows*heads)
	d.Buffer(what, dx, x.DType(), x.Len())
	d.Sums("rms norm backward: dWeight", dWeight, weight.Len())
}

// Rope checks x [positions.Len(), heads, dim] and requires each position to have a row in table.
func (d *Device) Rope(x, table npu.Buffer, positions npu.Ints, heads, dim int) {
	if dim <= 0 || dim%2 != 0 {
		fail("rope: head dimension is %d, expected an even number", dim)
	}
	d.Values("rope: x", x, positions.Len()*heads*dim)
	d.Len("rope: table", table, table.Len())
	d.Indices("rope: positions", positions, table.Len()/dim)
}

// SwiGLU requires n activations in each buffer.
func (d *Device) SwiGLU(what string, n int, buffers ...npu.Buffer) {
	for _, b := range buffers {
		d.Values(what, b, n)
	}
}
