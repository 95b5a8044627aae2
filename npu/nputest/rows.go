package nputest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// rowsResult holds the outputs of the kernels that move rows.
type rowsResult struct {
	embedded, gathered, scattered []float32
	dTable                        sums
}

// runRows calls the kernels that move rows, with n indices into a table [rows, cols], and checks all
// results against their definitions.
func runRows(t *testing.T, d npu.Device, rows, cols, n int) rowsResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(rows))
	}
	w, dw, dy := round(numerics(d), normal(r, rows*cols, 1)), normal(r, rows*cols, 1), normal(r, n*cols, 1)
	table, dTable := m.weights(w, rows, cols), m.matrixSums(rows, cols)
	l, list := &leaves{format(1), cut(r, n)}, m.ints(ids...)
	y, x, gathered, scattered := m.nan(n*cols), m.put(w), m.nan(n*cols), m.put(dw)
	d.Embed(y, table, list)
	d.EmbedBackward(dTable, m.put(dy), m.tokens(ids, l), l.FixedPoint)
	d.GatherRows(gathered, x, list, cols)
	d.ScatterAddRows(scattered, m.put(dy), list, cols)
	res := rowsResult{embedded: m.get(y), gathered: m.get(gathered), scattered: m.get(scattered),
		dTable: m.getMatrixSums(dTable)}
	for i, id := range ids {
		for c := range cols {
			dw[int(id)*cols+c] += dy[i*cols+c]
		}
		require.Equal(t, w[int(id)*cols:(int(id)+1)*cols], res.embedded[i*cols:(i+1)*cols])
	}
	equal(t, "gathered rows", res.embedded, res.gathered)
	if want := embedGradient(dy, ids, rows, cols, l); d.Info().Exact {
		require.Equal(t, want, res.dTable, "gradient of the table")
	} else {
		within(t, "gradient of the table", res.dTable.floats(l), widen(want.floats(l)), 1e-5)
	}
	equal(t, "scattered rows", dw, res.scattered)
	return res
}

// embedGradient computes EmbedBackward by its definition.
func embedGradient(dy []float32, ids []int32, rows, cols int, l *leaves) sums {
	total := sums{values: make([]int64, rows*cols)}
	start := 0
	for _, end := range l.units().ends {
		unit := make([]float32, rows*cols)
		for t := start; t < int(end); t++ {
			for c := range cols {
				if ids[t] >= 0 {
					unit[int(ids[t])*cols+c] += dy[t*cols+c]
				}
			}
		}
		total.addLeaf(unit, l)
		start = int(end)
	}
	return total
}

// testRows checks the kernels that move rows by index.
func testRows(t *testing.T, open func(threads int) (npu.Device, error)) {
	for _, threads := range []int{1, 3} {
		d := device(t, open, threads)
		for _, s := range [][3]int{{1, 1, 4}, {33, 65, 50}, {70, 3, 1}, {200, 130, 90}} {
			runRows(t, d, s[0], s[1], s[2])
		}
		testSetInts(t, d)
	}
}

func sameRows(t *testing.T, want npu.Device, got []npu.Device) {
	for _, s := range [][3]int{{67, 33, 40}, {9, 130, 700}} {
		r := runRows(t, want, s[0], s[1], s[2])
		for _, d := range got {
			again := runRows(t, d, s[0], s[1], s[2])
			require.Equal(t, r.dTable, again.dTable, "%s: gradient of the table", d.Info().Name)
		}
	}
}
