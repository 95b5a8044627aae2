package nputest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// leaves are npu.Leaves in host memory.
type leaves struct {
	npu.FixedPoint
	ends []int32
}

func (l *leaves) rows() int {
	if len(l.ends) == 0 {
		return 0
	}
	return int(l.ends[len(l.ends)-1])
}

// of returns one leaf of n rows in the same format.
func (l *leaves) of(n int) *leaves { return &leaves{l.FixedPoint, []int32{int32(n)}} }

// sums are fixed-point sums in host memory.
type sums struct {
	values []int64
	worst  int64 // the mark
}

// format returns the fixed-point format for values of this size.
func format(size float64) npu.FixedPoint {
	exponent := 30
	if size > 0 {
		exponent = min(120, max(0, 30-int(math.Round(math.Log2(size)))))
	}
	return npu.FixedPoint{Scale: float32(math.Ldexp(1, exponent)), Limit: 1 << 55}
}

// cut draws the ends of leaves of t rows.
func cut(r *rand.Rand, t int) []int32 {
	var ends []int32
	for end := 0; end < t; {
		end = min(t, end+r.IntN(max(2, t)))
		ends = append(ends, int32(end))
	}
	return ends
}

// addLeaf adds a leaf's values by the definition of npu.FixedPoint.
func (s *sums) addLeaf(values []float32, l *leaves) {
	for i, v := range values {
		p := v * l.Scale
		if p != p || p > l.Limit || p < -l.Limit {
			s.worst = max(s.worst, markOf(v))
			continue
		}
		s.values[i] += int64(math.RoundToEven(float64(p)))
	}
}

// markOf returns the mark that a value out of range leaves.
func markOf(v float32) int64 {
	if v != v {
		return int64(math.Float32bits(float32(math.NaN()))) // the canonical one
	}
	return int64(math.Float32bits(max(v, -v)))
}

func (s *sums) add(x sums) {
	if s.values == nil {
		s.values = make([]int64, len(x.values))
	}
	for i, v := range x.values {
		s.values[i] += v
	}
	s.worst = max(s.worst, x.worst)
}

// floats returns the sums as values.
func (s sums) floats(l *leaves) []float32 {
	x := make([]float32, len(s.values))
	for i, v := range s.values {
		x[i] = float32(float64(v) / float64(l.Scale))
	}
	return x
}

// sums allocates n sums of 0.
func (m *memory) sums(n int) npu.Sums {
	m.t.Helper()
	return npu.NewSums(m.zero(npu.Int64, n+1))
}

func (m *memory) matrixSums(rows, cols int) npu.MatrixSums {
	m.t.Helper()
	return npu.MatrixSums{Sums: m.sums(m.d.MatrixLen(rows, cols)), Rows: rows, Cols: cols}
}

// putSums copies sums to the device.
func (m *memory) putSums(values []int64) npu.Sums {
	m.t.Helper()
	b := m.alloc(npu.Int64, len(values)+1)
	m.putLongs(b, append(slices.Clone(values), 0))
	return npu.NewSums(b)
}

// getSums copies sums from the device.
func (m *memory) getSums(s npu.Sums) sums {
	m.t.Helper()
	return sums{m.getLongs(s.Buffer), m.getLongs(s.Mark)[0]}
}

// getMatrixSums returns the sums of a matrix, row-major. It requires zero padding. It
// unpacks 16 bits at a time, which float32 represents, so that any layout will do.
func (m *memory) getMatrixSums(w npu.MatrixSums) sums {
	m.t.Helper()
	packed := m.getSums(w.Sums)
	all := sums{make([]int64, w.Rows*w.Cols), packed.worst}
	for shift := 0; shift < 64; shift += 16 {
		part := make([]float32, len(packed.values))
		for i, v := range packed.values {
			part[i] = float32(uint16(v >> shift))
		}
		unpacked := m.getMatrix(npu.Matrix{Buffer: m.put(part), Rows: w.Rows, Cols: w.Cols})
		for i, v := range unpacked {
			all.values[i] |= int64(v) << shift
		}
	}
	require.Len(m.t, packed.values, w.Len())
	return all
}
