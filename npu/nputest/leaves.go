package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
)

// testLeaves checks how gradients of leaves are added to fixed-point sums.
func testLeaves(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	t.Run("chains", func(t *testing.T) {
		for _, s := range [][2]int{{1, 1}, {3, 31}, {32, 32}, {33, 65}, {130, 17}, {70, 450}} {
			for _, scale := range []float64{1, 1e-12, 1e19} {
				newDenseCase(50, s[0], s[1], scale).checkChains(t, d)
			}
		}
		newDenseCase(1500, 33, 40, 1).checkChains(t, d)
		tails := newDenseCase(561, 33, 17, 1)
		tails.leaves.ends = nil
		for rows, end := 1, 0; end < tails.t; rows++ { // of every length up to 33
			end += rows
			tails.leaves.ends = append(tails.leaves.ends, int32(end))
		}
		tails.checkChains(t, d)
	})
	t.Run("order", func(t *testing.T) {
		for _, c := range []*denseCase{newDenseCase(60, 33, 65, 1), newDenseCase(900, 17, 20, 1)} {
			for seed := range uint64(4) {
				c.checkOrder(t, d, rand.New(rand.NewPCG(seed, 1)))
			}
		}
	})
	t.Run("no rows", func(t *testing.T) {
		c := newDenseCase(5, 33, 3, 1)
		want := c.run(t, d)
		c.leaves.ends = slices.Concat([]int32{0}, c.leaves.ends, []int32{5})
		require.Equal(t, want.sums["dw"], c.run(t, d).sums["dw"])
		for _, ends := range [][]int32{nil, {0}} {
			m := newMemory(t, d)
			dw, db := m.matrixSums(3, 2), m.sums(3)
			none := &leaves{format(1), ends}
			l := m.leaves(none)
			d.LinearBackwardWeight(dw, db, npu.Buffer{}, npu.Buffer{}, l)
			d.EmbedBackward(dw, npu.Buffer{}, m.tokens(nil, none), none.FixedPoint)
			weight := m.values(filled(3, 1))
			d.RMSNormBackward(npu.Buffer{}, db, npu.Buffer{}, npu.Buffer{}, weight, 2, normEps, false, l)
			require.Equal(t, sums{values: make([]int64, 6)}, m.getMatrixSums(dw))
			require.Equal(t, sums{values: make([]int64, 3)}, m.getSums(db))
			m.free()
		}
	})
	t.Run("rounding", func(t *testing.T) { testRounding(t, d) })
}

// checkChains compares the gradient of a weight with products by Linear. For each leaf, the inputs of
// Linear are the leaf's dy and x, transposed.
func (c *denseCase) checkChains(t *testing.T, d npu.Device) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	dw, db := m.matrixSums(c.n, c.k), m.sums(c.n)
	d.LinearBackwardWeight(dw, db, m.values(c.dy), m.values(c.x), m.leaves(c.leaves))
	c = c.on(numerics(d))
	want, bias, start := sums{values: make([]int64, c.n*c.k)}, sums{values: make([]int64, c.n)}, 0
	for _, end := range c.leaves.ends {
		rows := int(end) - start
		if rows == 0 {
			continue
		}
		y, x := m.nan(c.n*c.k), m.weights(transposed(c.x[start*c.k:int(end)*c.k], c.k), c.k, rows)
		dy := c.dy[start*c.n : int(end)*c.n]
		d.Linear(y, m.values(transposed(dy, c.n)), x, npu.Buffer{}, c.n, npu.Fresh)
		want.addLeaf(m.get(y), c.leaves)
		leaf := make([]float32, c.n)
		for i, v := range dy {
			leaf[i%c.n] += v
		}
		bias.addLeaf(leaf, c.leaves)
		start = int(end)
	}
	require.Equal(t, want, m.getMatrixSums(dw), "%v", c)
	require.Equal(t, bias, m.getSums(db), "%v bias", c)
}

// transposed returns the transpose of x, which has rows of cols values.
func transposed(x []float32, cols int) []float32 {
	rows := len(x) / cols
	y := make([]float32, len(x))
	for i, v := range x {
		y[i%cols*rows+i/cols] = v
	}
	return y
}

// checkOrder requires the same sums if the leaves come in random orders, divided over any number of calls.
func (c *denseCase) checkOrder(t *testing.T, d npu.Device, r *rand.Rand) {
	t.Helper()
	type leaf struct{ lo, hi int }
	var list []leaf
	lo := 0
	for _, end := range cut(r, c.t) {
		list = append(list, leaf{lo, int(end)})
		lo = int(end)
	}
	ids := make([]int32, c.t)
	for i := range ids {
		ids[i] = int32(r.IntN(c.n))
	}
	m := newMemory(t, d)
	defer m.free()
	run := func(calls int) (dw, db, table, norm sums) {
		w, b, e, n := m.matrixSums(c.n, c.k), m.sums(c.n), m.matrixSums(c.n, c.k), m.sums(c.k)
		for call := range calls {
			var x, dy []float32
			var part []int32
			l := &leaves{FixedPoint: c.leaves.FixedPoint}
			for _, f := range list[len(list)*call/calls : len(list)*(call+1)/calls] {
				x, dy = append(x, c.x[f.lo*c.k:f.hi*c.k]...), append(dy, c.dy[f.lo*c.n:f.hi*c.n]...)
				part = append(part, ids[f.lo:f.hi]...)
				l.ends = append(l.ends, int32(len(part)))
			}
			at, cuts := m.values(x), m.leaves(l)
			d.LinearBackwardWeight(w, b, m.values(dy), at, cuts)
			d.EmbedBackward(e, m.put(x), m.tokens(part, l), l.FixedPoint)
			d.RMSNormBackward(m.nanValues(len(x)), n, at, at, m.values(filled(c.k, 1)), 1, normEps, false, cuts)
		}
		return m.getMatrixSums(w), m.getSums(b), m.getMatrixSums(e), m.getSums(n)
	}
	dw, db, table, norm := run(1)
	for calls := range len(list) {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		dw2, db2, table2, norm2 := run(calls + 1)
		require.Equal(t, dw, dw2, "%v", c)
		require.Equal(t, db, db2, "%v bias", c)
		require.Equal(t, table, table2, "%v table", c)
		require.Equal(t, norm, norm2, "%v norm", c)
	}
}

// testRounding adds values at the edges of the format to sums near overflow, which wrap.
func testRounding(t *testing.T, d npu.Device) {
	scales, limits := []float32{1, 2, 1 << 44, 0x1p120}, []float32{3, 1 << 40, 0x1p51, 0x1p60, 0x1p62}
	if numerics(d) == npu.BF16 && !soak.Long() { // the values that are added are float32 in both
		scales, limits = scales[1:3], limits[1:4:4]
	}
	for _, scale := range scales {
		for _, limit := range limits {
			l := &leaves{npu.FixedPoint{Scale: scale, Limit: limit}, []int32{1}}
			for _, p := range edges(limit) {
				checkRounding(t, d, p/scale, l)
			}
		}
	}
}

// edges returns scaled values, value·Scale, at which the rounding or the range check changes.
func edges(limit float32) []float32 {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	list := []float32{0, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 3.5, 1e-30, 4194303.5, 4194304.5, 8388607.5, 1 << 24, 0x1p51,
		0x1p52, 0x1p53, inf, nan,
		math.MaxFloat32}
	for _, v := range []float32{limit, 0x1p51, 0x1p52, 0x1p62, 0x1p63} {
		list = append(list, v, math.Nextafter32(v, 0), math.Nextafter32(v, inf))
	}
	for _, v := range slices.Clone(list) {
		list = append(list, -v)
	}
	return list
}

// checkRounding adds gradients that contain v at a random place. A layer with one row whose x is 1 has the
// gradient dy. An RMS norm with two equal heads adds dy twice.
func checkRounding(t *testing.T, d npu.Device, v float32, l *leaves) {
	t.Helper()
	const n = 37
	m := newMemory(t, d)
	defer m.free()
	r := rand.New(rand.NewPCG(uint64(math.Float32bits(v)), uint64(l.Limit)))
	dy, start := normal(r, n, 1/float64(l.Scale)), make([]int64, n)
	for i := range start {
		start[i] = math.MaxInt64 - int64(r.IntN(3))
	}
	lane := r.IntN(n)
	dy[lane] = v
	want, seen := sums{values: slices.Clone(start)}, round(numerics(d), dy)
	want.addLeaf(seen, l)
	bias := m.putSums(start)
	dw, table := m.matrixSums(n, 1), m.matrixSums(2, n)
	d.LinearBackwardWeight(dw, bias, m.values(dy), m.values([]float32{1}), m.leaves(l))
	d.EmbedBackward(table, m.put(dy), m.tokens([]int32{1}, l), l.FixedPoint)
	name := fmt.Sprintf("%g at scale %g, limit %g", v, l.Scale, l.Limit)
	require.Equal(t, want, m.getSums(bias), name)
	want = sums{values: make([]int64, n)}
	want.addLeaf(seen, l)
	require.Equal(t, want, m.getMatrixSums(dw), name)
	want = sums{values: make([]int64, n)}
	want.addLeaf(dy, l)
	got := m.getMatrixSums(table)
	require.Equal(t, want, sums{got.values[n:], got.worst}, name)
	require.Equal(t, make([]int64, n), got.values[:n], name)
	ones, twice, weight := m.values(filled(2*n, 1)), m.values(slices.Concat(dy, dy)), m.putSums(start)
	d.RMSNormBackward(m.nanValues(2*n), weight, twice, ones, ones.Slice(0, n), 2, 0, false, m.leaves(l))
	want = sums{values: slices.Clone(start)}
	want.addLeaf(seen, l)
	want.addLeaf(seen, l)
	require.Equal(t, want, m.getSums(weight), name+", two heads")
}
