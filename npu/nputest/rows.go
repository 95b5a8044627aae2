package nputest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

type rowsResult struct {
	embedded, gathered, scattered []float32
	dTable                        sums
}

func runRows(t *testing.T, d npu.Device, rows, cols, n int) rowsResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(rows))
	}
	w, dw, dy := normal(r, rows*cols, 1), normal(r, rows*cols, 1), normal(r, n*cols, 1)
	table, dTable := m.putMatrix(w, rows, cols), m.matrixSums(rows, cols)
	l := &npu.Leaves{FixedPoint: format(1), Ends: cut(r, n)}
	y, x, gathered, scattered := m.nan(n*cols), m.put(w), m.nan(n*cols), m.put(dw)
	d.Embed(y, table, ids)
	d.EmbedBackward(dTable, m.put(dy), ids, l)
	d.GatherRows(gathered, x, ids, cols)
	d.ScatterAddRows(scattered, m.put(dy), ids, cols)
	require.NoError(t, d.Sync())
	for i, id := range ids {
		for c := range cols {
			dw[int(id)*cols+c] += dy[i*cols+c]
		}
		require.Equal(t, w[int(id)*cols:(int(id)+1)*cols], m.get(y)[i*cols:(i+1)*cols])
	}
	res := rowsResult{embedded: m.get(y), gathered: m.get(gathered), scattered: m.get(scattered), dTable: m.getMatrixSums(dTable)}
	equal(t, "gathered rows", res.embedded, res.gathered)
	require.Equal(t, embedGradient(dy, ids, rows, cols, l), res.dTable, "gradient of the table")
	equal(t, "scattered rows", dw, res.scattered)
	return res
}

// embedGradient computes the definition.
func embedGradient(dy []float32, ids []int32, rows, cols int, l *npu.Leaves) sums {
	total := sums{values: make([]int64, rows*cols)}
	start := 0
	for _, end := range l.Ends {
		leaf := make([]float32, rows*cols)
		for t := start; t < int(end); t++ {
			for c := range cols {
				leaf[int(ids[t])*cols+c] += dy[t*cols+c]
			}
		}
		total.addLeaf(leaf, l)
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
		m := newMemory(t, d)
		table := m.putMatrix(make([]float32, 6), 3, 2)
		require.Panics(t, func() { d.Embed(m.nan(2), table, []int32{3}) }, "an id beyond the table")
		require.Panics(t, func() { d.Embed(m.nan(2), table, []int32{-1}) }, "a negative id")
		m.free()
	}
}

func sameRows(t *testing.T, want, got npu.Device) {
	a, b := runRows(t, want, 67, 33, 40), runRows(t, got, 67, 33, 40)
	require.Equal(t, a.dTable, b.dTable, "gradient of the table")
}
