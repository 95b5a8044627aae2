package host

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/npu"
)

// Shape is the shape of a matrix, or of a vector of Rows values if Cols is 0.
//
// CPU devices store both in panels. A panel of a matrix is npu.MatrixBlock rows,
// column by column; the last panel is padded with zeros. A vector is one panel.
type Shape struct{ Rows, Cols int }

// Values returns the number of values.
func (s Shape) Values() int { return s.Rows * max(s.Cols, 1) }

// PanelLen returns the number of values in a panel.
func (s Shape) PanelLen() int {
	if s.Cols == 0 {
		return s.Rows
	}
	return npu.MatrixBlock * s.Cols
}

// Panels returns the number of panels.
func (s Shape) Panels() int {
	if s.Cols == 0 {
		return 1
	}
	return (s.Rows + npu.MatrixBlock - 1) / npu.MatrixBlock
}

// RowShape returns the shape of the row-major tensor in a file.
func (s Shape) RowShape() []int {
	if s.Cols == 0 {
		return []int{s.Rows}
	}
	return []int{s.Rows, s.Cols}
}

// PanelShape returns the shape of the packed tensor in a file.
func (s Shape) PanelShape() []int {
	if s.Cols == 0 {
		return []int{s.Rows}
	}
	return []int{s.Panels(), s.Cols, npu.MatrixBlock}
}

// Block rounds a number of values down to whole panels, but to at least one.
func (s Shape) Block(values int) int { return max(values/s.PanelLen(), 1) * s.PanelLen() }

// PanelAt returns the index of the panel that begins with row-major value first.
func (s Shape) PanelAt(first int) int {
	if s.Cols == 0 {
		return 0
	}
	return first / s.PanelLen()
}

// Part returns the shape of the n panels that begin with panel first.
func (s Shape) Part(first, n int) Shape {
	if s.Cols == 0 {
		return s
	}
	return Shape{min(s.Rows-first*npu.MatrixBlock, n*npu.MatrixBlock), s.Cols}
}

// place returns the index in panels of row-major value i.
func (s Shape) place(i int) int {
	row, col := i/s.Cols, i%s.Cols
	return (row/npu.MatrixBlock*s.Cols+col)*npu.MatrixBlock + row%npu.MatrixBlock
}

// Pack lays out whole rows of row-major values in panels. It reuses buf if it is
// large enough. For a vector it returns vals.
func (s Shape) Pack(buf, vals []float32) []float32 {
	if s.Cols == 0 {
		return vals
	}
	n := Shape{len(vals) / s.Cols, s.Cols}.Panels() * s.PanelLen()
	buf = slices.Grow(buf[:0], n)[:n]
	clear(buf[max(0, n-s.PanelLen()):]) // the padding is in the last panel
	for first := 0; first < len(vals); first += s.Cols {
		at := s.place(first)
		for _, v := range vals[first : first+s.Cols] {
			buf[at] = v
			at += npu.MatrixBlock
		}
	}
	return buf
}

// Unpack returns the values of all panels of s in row-major order, in new memory.
func (s Shape) Unpack(packed []float32) []float32 {
	if s.Cols == 0 {
		return slices.Clone(packed)
	}
	vals := make([]float32, s.Values())
	for i := range vals {
		vals[i] = packed[s.place(i)]
	}
	return vals
}

// CheckPadding returns an error if the padding of the last panel is not zero. Kernels
// rely on zero padding.
func (s Shape) CheckPadding(packed []float32) error {
	padding := s.Panels()*npu.MatrixBlock - s.Rows // rows
	if s.Cols == 0 || padding == 0 {
		return nil
	}
	last := packed[len(packed)-s.PanelLen():]
	for c := range s.Cols {
		for lane := npu.MatrixBlock - padding; lane < npu.MatrixBlock; lane++ {
			if v := last[c*npu.MatrixBlock+lane]; v != 0 {
				return fmt.Errorf("padding after the last row is %v, expected 0", v)
			}
		}
	}
	return nil
}

// Sums maps a tensor's name to the XXH3 of each of its panels, as little-endian
// float32.
type Sums map[string][]uint64

// Total returns the checksum of all tensors in hexadecimal: the XXH3 of their sums,
// in order of tensor name and then panel.
func (s Sums) Total() string {
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, sum := range s[name] {
			all = binary.LittleEndian.AppendUint64(all, sum)
		}
	}
	return fmt.Sprintf("%016x", xxh3.Hash(all))
}
