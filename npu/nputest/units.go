package nputest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// unitLeaves returns leaves around the length of a unit, with empty ones between.
func unitLeaves() *leaves {
	l := &leaves{FixedPoint: format(1)}
	end := int32(0)
	for _, rows := range []int32{0, 1, 255, 0, 256, 257, 600, 512, 0} {
		end += rows
		l.ends = append(l.ends, end)
	}
	return l
}

// testUnits checks the gradients that are summed by units.
func testUnits(t *testing.T, open func(threads int) (npu.Device, error)) {
	for _, threads := range []int{1, 3} {
		d := device(t, open, threads)
		exactOnly(t, d)
		for _, heads := range []int{1, 3} {
			for _, n := range []int{5, 32, 150} {
				checkNormUnits(t, d, heads, n)
			}
		}
		for _, cols := range []int{1, 33, 64, 200} {
			checkEmbedUnits(t, d, cols)
		}
	}
}

// checkNormUnits requires the gradient of a norm's weight to be a chain over each unit. x is 1 or -1, so that
// the mean square is 1, and each term of a chain is dy or -dy.
func checkNormUnits(t *testing.T, d npu.Device, heads, n int) {
	t.Helper()
	m, l := newMemory(t, d), unitLeaves()
	defer m.free()
	r := rand.New(rand.NewPCG(uint64(heads), uint64(n)))
	width := heads * n
	x, dy := make([]float32, l.rows()*width), round(numerics(d), normal(r, l.rows()*width, 1))
	for i := range x {
		x[i] = float32(2*r.IntN(2) - 1)
	}
	want, start := sums{values: make([]int64, n)}, 0
	for _, end := range l.units().ends {
		unit := make([]float32, width)
		for i := start * width; i < int(end)*width; i++ {
			unit[i%width] += x[i] * dy[i]
		}
		for h := range heads {
			want.addLeaf(unit[h*n:(h+1)*n], l)
		}
		start = int(end)
	}
	for _, add := range []bool{false, true} {
		dw := m.sums(n)
		d.RMSNormBackward(m.put(x), dw, m.values(dy), m.put(x), m.values(filled(n, 1)), heads, 0, add, m.leaves(l))
		require.Equal(t, want, m.getSums(dw), "%d heads of %d, %s", heads, n, d.Info().Name)
	}
}

// checkEmbedUnits requires the gradient of an embedding to be a sum over the rows of one id in each unit: of
// one id, of few, and of many, with rows of no id between.
func checkEmbedUnits(t *testing.T, d npu.Device, cols int) {
	t.Helper()
	const rows = 70
	l := unitLeaves()
	r := rand.New(rand.NewPCG(uint64(cols), 1))
	dy, ids := normal(r, l.rows()*cols, 1), make([]int32, l.rows())
	for _, kinds := range []int{1, 3, rows} {
		for i := range ids {
			ids[i] = int32(rows - 1 - r.IntN(kinds))
			if r.IntN(5) == 0 {
				ids[i] = -1
			}
		}
		m := newMemory(t, d)
		table := m.matrixSums(rows, cols)
		d.EmbedBackward(table, m.put(dy), m.tokens(ids, l), l.FixedPoint)
		name := fmt.Sprintf("%d columns, %d ids, %s", cols, kinds, d.Info().Name)
		require.Equal(t, embedGradient(dy, ids, rows, cols, l), m.getMatrixSums(table), name)
		m.free()
	}
}
