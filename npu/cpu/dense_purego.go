package cpu

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/npu"
)

// panels returns the number of panels of a matrix with the given number of rows.
func panels(rows int) int { return (rows + panelRows - 1) / panelRows }

// matrixLen returns the number of values of a matrix in panels.
func matrixLen(rows, cols int) int { return panels(rows) * panelRows * cols }

// MatrixLen implements npu.Device.
func (d *pureGo) MatrixLen(rows, cols int) int { return matrixLen(rows, cols) }

// rowStart returns the index of element [row, 0] of a matrix in panels. The elements of a row
// are panelRows apart.
func rowStart(row, cols int) int { return row/panelRows*panelRows*cols + row%panelRows }

// PackMatrix implements npu.Device.
func (d *pureGo) PackMatrix(m npu.Matrix, src []float32) {
	d.check.OutsideCapture("upload")
	d.check.HostValues("pack matrix", m, src)
	clear(m.Float32s())
	for row := range m.Rows {
		start := rowStart(row, m.Cols)
		for c, x := range src[row*m.Cols : (row+1)*m.Cols] {
			m.Float32s()[start+c*panelRows] = x
		}
	}
}

// UnpackMatrix implements npu.Device.
func (d *pureGo) UnpackMatrix(dst []float32, m npu.Matrix) {
	d.check.OutsideCapture("download")
	d.check.HostValues("unpack matrix", m, dst)
	for row := range m.Rows {
		unpackRow(dst[row*m.Cols:(row+1)*m.Cols], m, row)
	}
}

// SumPanels implements npu.Device.
func (d *pureGo) SumPanels(sums []uint64, matrices []npu.Matrix) error {
	d.check.SumPanels(sums, matrices)
	next := 0
	for _, m := range matrices {
		panelLen := m.Len() // a vector is one panel
		if m.Cols > 0 {
			panelLen = panelRows * m.Cols
		}
		for panel := range slices.Chunk(m.Float32s(), panelLen) {
			sums[next] = xxh3.Hash(littleEndian(panel))
			next++
		}
	}
	return d.Sync()
}

// littleEndian returns the bytes of x in little-endian order.
func littleEndian(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// unpackRow copies a row of m, of m.Cols values, to dst.
func unpackRow(dst []float32, m npu.Matrix, row int) {
	start := rowStart(row, m.Cols)
	for c := range dst {
		load(dst[c:c+1], m.Buffer, start+c*panelRows)
	}
}

// Embed implements npu.Device.
func (d *pureGo) Embed(y npu.Buffer, table npu.Matrix, ids npu.Ints) {
	d.check.Embed(y, table, ids)
	for t, id := range ids.Int32s() {
		unpackRow(y.Float32s()[t*table.Cols:(t+1)*table.Cols], table, int(id))
	}
}

// EmbedBackward implements npu.Device.
func (d *pureGo) EmbedBackward(dTable npu.MatrixSums, dy npu.Buffer, tokens *npu.Tokens, format npu.FixedPoint) {
	d.check.EmbedBackward(dTable, dy, tokens, format)
	n := dTable.Cols
	gradient := fixedSums(dTable.Sums, format)
	ids, starts, dys := tokens.IDs.Int32s(), tokens.Starts.Int32s(), dy.Float32s()
	for i := range tokens.Lists() {
		list := tokens.Rows.Int32s()[starts[i]:starts[i+1]]
		if len(list) == 0 {
			continue
		}
		sum := make([]float32, n)
		for _, t := range list {
			for c, v := range dys[int(t)*n : (int(t)+1)*n] {
				sum[c] += v
			}
		}
		start := rowStart(int(ids[list[0]]), n)
		for c, v := range sum {
			gradient.add(start+c*panelRows, v)
		}
	}
}

// Linear implements npu.Device.
func (d *pureGo) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.check.Linear(y, x, w, bias, t, start)
	ys, done := write(y)
	defer done()
	xs, biases := rowMajor(read(x), t, w.Cols), read(bias)
	before := start == npu.Continue || d.numerics == npu.FP32 // chains start from bias or y
	d.parallel(panels(w.Rows), func(p int) {
		lo, hi := p*panelRows, min(w.Rows, (p+1)*panelRows)
		panel := make([]float32, panelRows*w.Cols)
		load(panel, w.Buffer, lo*w.Cols)
		sums := make([]float32, t*(hi-lo)) // bias or y, or 0, then the output
		for i := range t {
			switch row := sums[i*(hi-lo):][:hi-lo]; {
			case start != npu.Fresh:
				copy(row, ys[i*w.Rows+lo:])
			case !bias.IsNil():
				copy(row, biases[lo:])
			}
		}
		products := sums
		if !before {
			products = make([]float32, len(sums))
		}
		d.chains.factor(grid{panel, w.Cols, hi - lo, panelRows, 1}).multiply(products, hi-lo, xs)
		for i := range t {
			for l := range hi - lo {
				v := products[i*(hi-lo)+l]
				if !before {
					v = sums[i*(hi-lo)+l] + v
				}
				ys[i*w.Rows+lo+l] = v
			}
		}
	})
}

// LinearBackwardInput implements npu.Device.
func (d *pureGo) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	d.check.Products(dx, products, t, add)
	dxs, done := write(dx)
	defer done()
	dys := make([][]float32, len(products))
	for i := range products {
		dys[i] = read(products[i].DY)
	}
	cols := products[0].W.Cols
	blocks := (products[0].W.Rows + products[0].Block - 1) / products[0].Block
	d.parallel((cols+panelRows-1)/panelRows, func(task int) {
		lo, hi := task*panelRows, min(cols, (task+1)*panelRows) // columns of dx
		if !add {
			for i := range t {
				clear(dxs[i*cols+lo : i*cols+hi])
			}
		}
		for b := range blocks {
			for j := range products {
				w := products[j].W
				first, end := b*products[j].Block, min(w.Rows, (b+1)*products[j].Block)
				block := make([]float32, (end-first)*(hi-lo)) // row-major
				for i := range block {
					row, col := first+i/(hi-lo), lo+i%(hi-lo)
					load(block[i:i+1], w.Buffer, rowStart(row, cols)+col*panelRows)
				}
				if t > 0 {
					d.chains.factor(rowMajor(block, end-first, hi-lo)).
						multiply(dxs[lo:], cols, grid{dys[j][first:], t, end - first, w.Rows, 1})
				}
			}
		}
	})
}

// LinearBackwardWeight implements npu.Device.
func (d *pureGo) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	d.check.LinearSums(dw, dBias, dy, x, l)
	dys, xs := read(dy), read(x)
	d.parallel(panels(dw.Rows), func(p int) {
		start := 0
		for _, end := range l.Ends.Int32s() {
			d.weightLeaf(dw, p, dys, xs, start, int(end), l.FixedPoint)
			start = int(end)
		}
	})
	if dBias.IsNil() {
		return
	}
	gradient := fixedSums(dBias, l.FixedPoint)
	start := 0
	for _, end := range l.Ends.Int32s() {
		sum := make([]float32, dw.Rows)
		for t := start; t < int(end); t++ {
			for n, g := range dys[t*dw.Rows : (t+1)*dw.Rows] {
				sum[n] += g
			}
		}
		for n, v := range sum {
			gradient.add(n, v)
		}
		start = int(end)
	}
}

// weightLeaf computes panel p of the gradient dyᵀ x of one leaf, the rows [start, end), and adds
// it to dw. Padding lanes of the panel remain 0.
func (d *pureGo) weightLeaf(dw npu.MatrixSums, p int, dy, x []float32, start, end int, f npu.FixedPoint) {
	const rows = 256 // at a time; a multiple of the terms of a step
	lo, hi := p*panelRows, min(dw.Rows, (p+1)*panelRows)
	panel := make([]float32, panelRows*dw.Cols)
	gradient := fixedSums(dw.Sums, f)
	for ; start < end; start += rows {
		n := min(rows, end-start)
		d.chains.factor(grid{dy[start*dw.Rows+lo:], n, hi - lo, dw.Rows, 1}).
			multiply(panel, panelRows, rowMajor(x[start*dw.Cols:], n, dw.Cols).transposed())
	}
	for i, v := range panel {
		gradient.add(lo*dw.Cols+i, v)
	}
}
