package nputest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// leaves holds an npu.Leaves in host memory: the format and the row at which each leaf ends.
type leaves struct {
	npu.FixedPoint
	ends []int32
}

// rows returns the number of rows of all leaves.
func (l *leaves) rows() int {
	if len(l.ends) == 0 {
		return 0
	}
	return int(l.ends[len(l.ends)-1])
}

// units returns the units of the leaves as leaves: every 256 rows of a leaf, counted from its first.
func (l *leaves) units() *leaves {
	u := &leaves{FixedPoint: l.FixedPoint}
	start := 0
	for _, end := range l.ends {
		for row := start; row < int(end); row++ {
			if row > start && (row-start)%256 == 0 {
				u.ends = append(u.ends, int32(row))
			}
		}
		u.ends = append(u.ends, end)
		start = int(end)
	}
	return u
}

// of returns one leaf of n rows in the same format.
func (l *leaves) of(n int) *leaves { return &leaves{l.FixedPoint, []int32{int32(n)}} }

// sums holds an npu.Sums in host memory.
type sums struct {
	values []int64
	worst  int64 // the mark; 0 if no value was out of range
}

// format returns a fixed-point format for values of this size.
func format(size float64) npu.FixedPoint {
	exponent := 30
	if size > 0 {
		exponent = min(120, max(0, 30-int(math.Round(math.Log2(size)))))
	}
	return npu.FixedPoint{Scale: float32(math.Ldexp(1, exponent)), Limit: 1 << 55}
}

// cut draws leaves that cover t rows and returns their ends.
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

// add adds the sums x to s.
func (s *sums) add(x sums) {
	if s.values == nil {
		s.values = make([]int64, len(x.values))
	}
	for i, v := range x.values {
		s.values[i] += v
	}
	s.worst = max(s.worst, x.worst)
}

// floats returns the values that the sums stand for in the format of l.
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

// matrixSums allocates the sums of a matrix, all 0.
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

// getMatrixSums copies the sums of a matrix from the device, in row-major order. It requires the padding to
// be zero. To find out the device's layout, it unpacks a matrix whose values are their own places.
func (m *memory) getMatrixSums(w npu.MatrixSums) sums {
	m.t.Helper()
	packed := m.getSums(w.Sums)
	require.Len(m.t, packed.values, w.Len())
	require.Less(m.t, w.Len(), 1<<24, "places that float32 represents")
	places := make([]float32, w.Len())
	for i := range places {
		places[i] = float32(i)
	}
	at := make([]float32, w.Rows*w.Cols)
	m.d.UnpackMatrix(at, npu.Matrix{Buffer: m.put(places), Rows: w.Rows, Cols: w.Cols})
	require.NoError(m.t, m.d.Sync())
	all := sums{make([]int64, w.Rows*w.Cols), packed.worst}
	for i, place := range at {
		all.values[i] = packed.values[int(place)]
	}
	for _, place := range at {
		packed.values[int(place)] = 0
	}
	for place, v := range packed.values {
		require.True(m.t, v == 0, "padding at %d is %d, expected 0", place, v)
	}
	return all
}
