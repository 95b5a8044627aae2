package cpu

import (
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

func panels(rows int) int { return (rows + panelRows - 1) / panelRows }

// matrixLen returns the number of values of a matrix in panels.
func matrixLen(rows, cols int) int { return panels(rows) * panelRows * cols }

// matrixKernels are the kernels over matrices in panels.
type matrixKernels struct{ *workers }

// MatrixLen implements npu.Device.
func (matrixKernels) MatrixLen(rows, cols int) int { return matrixLen(rows, cols) }

// lane returns the index of w's element [row, 0]. Elements of a row are panelRows
// apart.
func lane(w npu.Matrix, row int) int { return row/panelRows*panelRows*w.Cols + row%panelRows }

// PackMatrix implements npu.Device.
func (matrixKernels) PackMatrix(m npu.Matrix, src []float32) {
	check.Matrix("pack matrix", m, matrixLen)
	check.Same("pack matrix", len(src), m.Rows*m.Cols)
	clear(m.Float32s())
	for row := range m.Rows {
		at := lane(m, row)
		for c, x := range src[row*m.Cols : (row+1)*m.Cols] {
			m.Float32s()[at+c*panelRows] = x
		}
	}
}

// UnpackMatrix implements npu.Device.
func (matrixKernels) UnpackMatrix(dst []float32, m npu.Matrix) {
	check.Matrix("unpack matrix", m, matrixLen)
	check.Same("unpack matrix", len(dst), m.Rows*m.Cols)
	for row := range m.Rows {
		unpackRow(dst[row*m.Cols:(row+1)*m.Cols], m, row)
	}
}

func unpackRow(dst []float32, m npu.Matrix, row int) {
	at := lane(m, row)
	for c := range dst {
		dst[c] = m.Float32s()[at+c*panelRows]
	}
}

// Embed implements npu.Device.
func (matrixKernels) Embed(y npu.Buffer, table npu.Matrix, ids []int32) {
	check.Matrix("embed", table, matrixLen)
	check.Len("embed: y", y, len(ids)*table.Cols, false)
	check.Indices("embed: ids", ids, table.Rows)
	for t, id := range ids {
		unpackRow(y.Float32s()[t*table.Cols:(t+1)*table.Cols], table, int(id))
	}
}

// EmbedBackward implements npu.Device.
func (matrixKernels) EmbedBackward(dTable npu.Matrix, dy npu.Buffer, ids []int32) {
	check.Matrix("embed backward", dTable, matrixLen)
	check.Len("embed backward: dy", dy, len(ids)*dTable.Cols, false)
	check.Indices("embed backward: ids", ids, dTable.Rows)
	g := dTable.Float32s()
	for t, id := range ids {
		at := lane(dTable, int(id))
		for c, x := range dy.Float32s()[t*dTable.Cols : (t+1)*dTable.Cols] {
			g[at+c*panelRows] += x
		}
	}
}

// chain computes acc[l] = fma(a, b[l], acc[l]) for the lanes of acc.
func chain(acc []float32, a float32, b []float32) {
	b = b[:len(acc)]
	for l := range acc {
		acc[l] = fma32(a, b[l], acc[l])
	}
}

// Linear implements npu.Device.
func (d matrixKernels) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, add bool) {
	check.Linear("linear", y, x, w, bias, t, matrixLen)
	d.linear(y.Float32s(), x.Float32s(), w, bias.Float32s(), t, add)
}

func (d matrixKernels) linear(y, x []float32, w npu.Matrix, bias []float32, t int, add bool) {
	d.parallel(panels(w.Rows), func(p int) {
		lo, hi := p*panelRows, min(w.Rows, (p+1)*panelRows)
		panel := w.Float32s()[lo*w.Cols : (p+1)*panelRows*w.Cols]
		for i := range t {
			acc := y[i*w.Rows+lo : i*w.Rows+hi]
			switch {
			case add:
			case bias != nil:
				copy(acc, bias[lo:hi])
			default:
				clear(acc)
			}
			for k, a := range x[i*w.Cols : (i+1)*w.Cols] {
				chain(acc, a, panel[k*panelRows:])
			}
		}
	})
}

// LinearBackwardInput implements npu.Device.
func (d matrixKernels) LinearBackwardInput(dx, dy npu.Buffer, w npu.Matrix, t int, add bool) {
	check.Linear("linear backward input", dy, dx, w, npu.Buffer{}, t, matrixLen)
	d.backwardInput(dx.Float32s(), dy.Float32s(), w, t, add)
}

func (d matrixKernels) backwardInput(dx, dy []float32, w npu.Matrix, t int, add bool) {
	rows := make([]float32, w.Rows*w.Cols)
	for n := range w.Rows {
		unpackRow(rows[n*w.Cols:(n+1)*w.Cols], w, n)
	}
	d.parallel(t, func(i int) {
		acc := dx[i*w.Cols : (i+1)*w.Cols]
		if !add {
			clear(acc)
		}
		for n, a := range dy[i*w.Rows : (i+1)*w.Rows] {
			chain(acc, a, rows[n*w.Cols:])
		}
	})
}

// LinearBackwardWeight implements npu.Device.
func (d matrixKernels) LinearBackwardWeight(dw npu.Matrix, dBias, dy, x npu.Buffer, t int) {
	check.Linear("linear backward weight", dy, x, dw, dBias, t, matrixLen)
	d.backwardWeight(dw, dy.Float32s(), x.Float32s(), t)
	if dBias.IsNil() {
		return
	}
	for i := range t {
		for n, g := range dy.Float32s()[i*dw.Rows : (i+1)*dw.Rows] {
			dBias.Float32s()[n] += g
		}
	}
}

func (d matrixKernels) backwardWeight(dw npu.Matrix, dy, x []float32, t int) {
	d.parallel(panels(dw.Rows), func(p int) {
		lo, hi := p*panelRows, min(dw.Rows, (p+1)*panelRows)
		panel := dw.Float32s()[lo*dw.Cols : (p+1)*panelRows*dw.Cols]
		for i := range t {
			lanes := dy[i*dw.Rows+lo : i*dw.Rows+hi]
			for k, a := range x[i*dw.Cols : (i+1)*dw.Cols] {
				chain(panel[k*panelRows:k*panelRows+hi-lo], a, lanes)
			}
		}
	})
}
