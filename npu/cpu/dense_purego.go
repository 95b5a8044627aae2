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
		dst[c] = m.Float32s()[start+c*panelRows]
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

// chain adds one term to each lane's chain: acc[l] = fma(a, b[l], acc[l]). b has at least as many
// values as acc.
func chain(acc []float32, a float32, b []float32) {
	b = b[:len(acc)]
	for l := range acc {
		acc[l] = fma32(a, b[l], acc[l])
	}
}

// Linear implements npu.Device.
func (d *pureGo) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.check.Linear(y, x, w, bias, t, start)
	d.parallel(panels(w.Rows), func(p int) {
		lo, hi := p*panelRows, min(w.Rows, (p+1)*panelRows)
		panel := w.Float32s()[lo*w.Cols : (p+1)*panelRows*w.Cols]
		for i := range t {
			acc := y.Float32s()[i*w.Rows+lo : i*w.Rows+hi]
			switch {
			case start != npu.Fresh: // the chains start from y
			case !bias.IsNil():
				copy(acc, bias.Float32s()[lo:hi])
			default:
				clear(acc)
			}
			for k, a := range x.Float32s()[i*w.Cols : (i+1)*w.Cols] {
				chain(acc, a, panel[k*panelRows:])
			}
		}
	})
}

// LinearBackwardInput implements npu.Device.
func (d *pureGo) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	d.check.Products(dx, products, t, add)
	cols := products[0].W.Cols
	rows := make([][]float32, len(products)) // weights, row-major
	for i := range products {
		w := products[i].W
		rows[i] = make([]float32, w.Rows*cols)
		for n := range w.Rows {
			unpackRow(rows[i][n*cols:(n+1)*cols], w, n)
		}
	}
	blocks := (products[0].W.Rows + products[0].Block - 1) / products[0].Block
	d.parallel(t, func(i int) {
		acc := dx.Float32s()[i*cols : (i+1)*cols]
		if !add {
			clear(acc)
		}
		for b := range blocks {
			for j := range products {
				p := &products[j]
				dy := p.DY.Float32s()[i*p.W.Rows : (i+1)*p.W.Rows]
				for n := b * p.Block; n < min(p.W.Rows, (b+1)*p.Block); n++ {
					chain(acc, dy[n], rows[j][n*cols:])
				}
			}
		}
	})
}

// LinearBackwardWeight implements npu.Device.
func (d *pureGo) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	d.check.LinearSums(dw, dBias, dy, x, l)
	d.parallel(panels(dw.Rows), func(p int) {
		start := 0
		for _, end := range l.Ends.Int32s() {
			weightLeaf(dw, p, dy.Float32s(), x.Float32s(), start, int(end), l.FixedPoint)
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
			for n, g := range dy.Float32s()[t*dw.Rows : (t+1)*dw.Rows] {
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
func weightLeaf(dw npu.MatrixSums, p int, dy, x []float32, start, end int, f npu.FixedPoint) {
	lo, hi := p*panelRows, min(dw.Rows, (p+1)*panelRows)
	panel := make([]float32, panelRows*dw.Cols)
	gradient := fixedSums(dw.Sums, f)
	for t := start; t < end; t++ {
		lanes := dy[t*dw.Rows+lo : t*dw.Rows+hi]
		for k, a := range x[t*dw.Cols : (t+1)*dw.Cols] {
			chain(panel[k*panelRows:k*panelRows+hi-lo], a, lanes)
		}
	}
	for i, v := range panel {
		gradient.add(lo*dw.Cols+i, v)
	}
}
