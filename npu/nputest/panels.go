package nputest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/host"
)

// testPanels compares the sums of panels of every shape, many in one call, with another
// implementation of XXH3.
func testPanels(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	m, r := newMemory(t, d), rand.New(rand.NewPCG(31, 37))
	defer m.free()
	shapes := [][2]int{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {1, 1}, {31, 1}, {65, 1}, {33, 2}, {70, 65}, {32, 40}}
	for n := 5; n < 300; n += 7 {
		shapes = append(shapes, [2]int{n, 0})
	}
	var matrices []npu.Matrix
	var want []uint64
	for _, shape := range shapes {
		s := host.Shape{Rows: shape[0], Cols: shape[1]}
		vals := normal(r, s.Values(), 1)
		vals[0] = float32(math.Copysign(0, -1))
		w := npu.Matrix{Rows: s.Rows, Cols: s.Cols}
		if s.Cols == 0 {
			w.Buffer = m.put(vals)
		} else {
			w = m.putMatrix(vals, s.Rows, s.Cols)
		}
		matrices = append(matrices, w)
		for panel := range slices.Chunk(s.Pack(nil, vals), s.PanelLen()) {
			var bytes []byte
			for _, v := range panel {
				bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
			}
			want = append(want, xxh3.Hash(bytes))
		}
	}
	got := make([]uint64, len(want))
	require.NoError(t, d.SumPanels(got, matrices))
	require.Equal(t, want, got)
	require.NoError(t, d.SumPanels(nil, nil))
	for name, call := range map[string]func(){
		"sums missing": func() { _ = d.SumPanels(make([]uint64, 1), matrices[:2]) },
		"a vector of another length": func() {
			_ = d.SumPanels(make([]uint64, 1), []npu.Matrix{{Buffer: matrices[1].Buffer, Rows: 3}})
		},
	} {
		require.Panics(t, call, name)
	}
}

// testSetInts sets some values of a table.
func testSetInts(t *testing.T, d npu.Device) {
	m := newMemory(t, d)
	defer m.free()
	table := m.zero(npu.Int32, 7)
	d.SetInts(table, m.ints(6, 0, 3, 0), m.ints(-5, 9, 1<<30, 9))
	require.Equal(t, []int32{9, 0, 0, 1 << 30, 0, 0, -5}, m.getInts(table))
	d.SetInts(table, npu.Ints{}, npu.Ints{})
	for name, at := range map[string][]int32{"below": {-1}, "beyond": {7}, "of another length": {1, 2}} {
		require.Panics(t, func() { d.SetInts(table, m.ints(at...), m.ints(1)) }, name)
	}
}

// testNormLinear compares NormLinear with RMSNorm and one call of Linear for each projection.
func testNormLinear(t *testing.T, d npu.Device) {
	r := rand.New(rand.NewPCG(41, 43))
	for _, c := range [][]int{{1, 8, 16}, {3, 40, 33, 7, 7}, {65, 64, 100, 32}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rows, cols := c[0], c[1]
			m := newMemory(t, d)
			defer m.free()
			x, weight, norm := m.put(normal(r, rows*cols, 1)), m.values(normal(r, cols, 1)), m.nanValues(rows*cols)
			var outputs []npu.Projection
			var want []npu.Buffer
			d.RMSNorm(norm, x, weight, rows, 1e-6)
			for i, n := range c[2:] {
				o := npu.Projection{Y: m.nanValues(rows * n), W: m.weights(normal(r, n*cols, 0.2), n, cols)}
				if i != 1 {
					o.Bias = m.values(normal(r, n, 1))
				}
				y := m.nanValues(rows * n)
				d.Linear(y, norm, o.W, o.Bias, rows, npu.Fresh)
				outputs, want = append(outputs, o), append(want, y)
			}
			d.NormLinear(outputs, m.nanValues(rows*cols), x, weight, rows, 1e-6)
			for i, y := range want {
				if d.Info().Exact {
					equal(t, "projection", m.get(y), m.get(outputs[i].Y))
				} else {
					within(t, "projection", m.get(outputs[i].Y), widen(m.get(y)), loosened(numerics(d), 1e-5))
				}
			}
		})
	}
}
