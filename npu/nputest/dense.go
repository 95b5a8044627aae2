package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// denseCase holds the operands of a linear layer and its backward pass in host
// memory: t rows, a weight [n, k]. Fields ending in 0 are the outputs' initial
// values.
type denseCase struct {
	t, n, k        int
	x, w, bias, dy []float32
	y0, dx0        []float32
	leaves         *leaves
}

func newDenseCase(t, n, k int, scale float64) *denseCase {
	r := rand.New(rand.NewPCG(uint64(t*1000+n), uint64(k)))
	return &denseCase{
		t: t, n: n, k: k,
		x: normal(r, t*k, scale), w: normal(r, n*k, 1), bias: normal(r, n, scale), dy: normal(r, t*n, scale),
		y0: normal(r, t*n, scale), dx0: normal(r, t*k, scale), leaves: &leaves{format(scale * scale), cut(r, t)},
	}
}

func (c *denseCase) String() string { return fmt.Sprintf("%d rows, weight [%d, %d]", c.t, c.n, c.k) }

// rows returns the case of rows [lo, hi) alone, as one leaf.
func (c *denseCase) rows(lo, hi int) *denseCase {
	return &denseCase{
		t: hi - lo, n: c.n, k: c.k, w: c.w, bias: c.bias, leaves: c.leaves.of(hi - lo),
		x: c.x[lo*c.k : hi*c.k], dy: c.dy[lo*c.n : hi*c.n], y0: c.y0[lo*c.n : hi*c.n], dx0: c.dx0[lo*c.k : hi*c.k],
	}
}

func denseCases(scale float64) []*denseCase {
	var all []*denseCase
	for _, t := range []int{1, 2, 3, 7, 12, 13, 33} {
		for _, s := range [][2]int{{1, 1}, {3, 31}, {31, 3}, {32, 32}, {33, 65}, {65, 33}, {130, 17}, {257, 64}} {
			all = append(all, newDenseCase(t, s[0], s[1], scale))
		}
	}
	// Larger than the blocks of rows and terms that a device may use.
	return append(all, newDenseCase(397, 40, 37, scale), newDenseCase(2, 70, 530, scale),
		newDenseCase(14, 530, 67, scale),
		newDenseCase(530, 33, 14, scale), newDenseCase(13, 9, 401, scale))
}

// putMatrix packs row-major values on the device, in memory that holds NaN.
func (m *memory) putMatrix(x []float32, rows, cols int) npu.Matrix {
	m.t.Helper()
	w := npu.Matrix{Buffer: m.nan(m.d.MatrixLen(rows, cols)), Rows: rows, Cols: cols}
	m.d.PackMatrix(w, x)
	return w
}

// getMatrix reads a matrix back. It requires the padding to be zero: the values, packed again into memory
// of zeros, must give the same memory.
func (m *memory) getMatrix(w npu.Matrix) []float32 {
	m.t.Helper()
	x := make([]float32, w.Rows*w.Cols)
	m.d.UnpackMatrix(x, w)
	require.NoError(m.t, m.d.Sync())
	again := npu.Matrix{Buffer: m.zero(npu.Float32, w.Len()), Rows: w.Rows, Cols: w.Cols}
	m.d.PackMatrix(again, x)
	equal(m.t, "layout of an unpacked and packed matrix", m.get(again.Buffer), m.get(w.Buffer))
	return x
}

// requireBlocks packs x block by block and requires the memory to equal that of w, which holds x packed in
// one call. In host memory, it also requires the layout that npu.Matrix documents.
func (m *memory) requireBlocks(w npu.Matrix, x []float32) {
	m.t.Helper()
	got := m.nan(w.Len())
	for row := 0; row < w.Rows; row += npu.MatrixBlock {
		n := min(npu.MatrixBlock, w.Rows-row)
		at := m.d.MatrixLen(row, w.Cols)
		if row == 0 {
			at = 0
		}
		part := npu.Matrix{Buffer: got.Slice(at, at+m.d.MatrixLen(n, w.Cols)), Rows: n, Cols: w.Cols}
		m.d.PackMatrix(part, x[row*w.Cols:(row+n)*w.Cols])
	}
	layout := m.get(w.Buffer)
	equal(m.t, "layout of a matrix packed block by block", layout, m.get(got))
	if m.d.Space() == npu.Host {
		want := make([]float32, len(layout))
		for i, v := range x {
			row, col := i/w.Cols, i%w.Cols
			want[(row/npu.MatrixBlock*w.Cols+col)*npu.MatrixBlock+row%npu.MatrixBlock] = v
		}
		equal(m.t, "layout in the host's memory", want, layout)
	}
}

func (c *denseCase) run(t *testing.T, d npu.Device) outputs {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	x, w, bias, dy := m.put(c.x), m.putMatrix(c.w, c.n, c.k), m.put(c.bias), m.put(c.dy)
	plain, biased, added := m.nan(c.t*c.n), m.nan(c.t*c.n), m.put(c.y0)
	dx, dxAdded := m.nan(c.t*c.k), m.put(c.dx0)
	dw, dwNoBias, db, l := m.matrixSums(c.n, c.k), m.matrixSums(c.n, c.k), m.sums(c.n), m.leaves(c.leaves)
	d.Linear(plain, x, w, npu.Buffer{}, c.t, npu.Fresh)
	d.Linear(biased, x, w, bias, c.t, npu.Fresh)
	d.Linear(added, x, w, npu.Buffer{}, c.t, npu.Add)
	d.LinearBackwardInput(dx, []npu.Product{{DY: dy, W: w, Block: c.n}}, c.t, false)
	d.LinearBackwardInput(dxAdded, []npu.Product{{DY: dy, W: w, Block: c.n}}, c.t, true)
	d.LinearBackwardWeight(dw, db, dy, x, l)
	d.LinearBackwardWeight(dwNoBias, npu.Sums{}, dy, x, l)
	r := outputs{
		map[string][]float32{
			"y": m.get(plain), "y with bias": m.get(biased), "y added": m.get(added),
			"dx": m.get(dx), "dx added": m.get(dxAdded),
		},
		map[string]sums{"dw": m.getMatrixSums(dw), "dbias": m.getSums(db)},
	}
	if d.Info().Exact {
		require.Equal(t, m.getSums(dw.Sums), m.getSums(dwNoBias.Sums), "%v dw, without a bias", c)
	}
	return r
}

// checkLayout packs the weight, and requires its values to come back and its layout to be right.
func (c *denseCase) checkLayout(t *testing.T, d npu.Device) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	w := m.putMatrix(c.w, c.n, c.k)
	equal(t, c.String()+" w", c.w, m.getMatrix(w))
	m.requireBlocks(w, c.w)
}

// refDense computes the case by definition: in float64 if to is widen, naively in float32 if to is same32.
func refDense[F reference.Float](c *denseCase, to func([]float32) []F) (y, dx, dw, db []F) {
	t, n, k := c.t, c.n, c.k
	x, w, dy := to(c.x), to(c.w), to(c.dy)
	ones := to(filled(t, 1))
	y = reference.Product(to(c.y0), x, w, t, n, k, k, 1, k, 1)
	dx = reference.Product(to(c.dx0), dy, w, t, k, n, n, 1, 1, k)
	dw = reference.Product(make([]F, n*k), dy, x, n, k, t, 1, n, 1, k)
	db = reference.Product(make([]F, n), ones, dy, 1, n, t, 0, 1, 1, n)
	return y, dx, dw, db
}

// same32 returns x. It is the counterpart of widen for references in float32.
func same32(x []float32) []float32 { return x }

func (c *denseCase) checkReference(t *testing.T, got outputs) {
	t.Helper()
	y, dx, dw, db := refDense(c, widen)
	ny, ndx, ndw, ndb := refDense(c, same32)
	near(t, c.String()+" y added", got.values["y added"], y, ny)
	near(t, c.String()+" dx added", got.values["dx added"], dx, ndx)
	near(t, c.String()+" dw", got.sums["dw"].floats(c.leaves), dw, ndw)
	near(t, c.String()+" dbias", got.sums["dbias"].floats(c.leaves), db, ndb)
	zero, bias := *c, *c
	zero.y0, zero.dx0 = make([]float32, c.t*c.n), make([]float32, c.t*c.k)
	bias.y0 = nil
	for range c.t {
		bias.y0 = append(bias.y0, c.bias...)
	}
	y, dx, _, _ = refDense(&zero, widen)
	ny, ndx, _, _ = refDense(&zero, same32)
	near(t, c.String()+" y", got.values["y"], y, ny)
	near(t, c.String()+" dx", got.values["dx"], dx, ndx)
	y, _, _, _ = refDense(&bias, widen)
	ny, _, _, _ = refDense(&bias, same32)
	near(t, c.String()+" y with bias", got.values["y with bias"], y, ny)
}

// testDense checks the linear layer and its backward pass.
func testDense(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range denseCases(1) {
			c.checkReference(t, c.run(t, one))
			c.checkLayout(t, one)
		}
	})
	t.Run("threads", func(t *testing.T) {
		all := teams(t, open, 2, 3, 4)
		for i, c := range denseCases(1) {
			if len(all) == 0 {
				break
			}
			want := c.run(t, one)
			for _, d := range all {
				threads := d.(npu.Cores)
				equalOutputs(t, fmt.Sprintf("%v, %d threads", c, threads.Threads()), want, c.run(t, d))
				c.checkLayout(t, d)
				for limit := range threads.Threads() + 2 { // the first and the last are out of range
					// Without soak.Long, each case tries only one limit, and the cases of a shape different ones.
					if (i+i/8)%(threads.Threads()+2) != limit && !soak.Long() {
						continue
					}
					threads.Limit(limit)
					equalOutputs(t, fmt.Sprintf("%v, %d of %d threads", c, limit, threads.Threads()), want, c.run(t, d))
				}
				threads.Limit(threads.Threads())
			}
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range denseCases(1) {
			for _, step := range []int{1, 5, 12} {
				c.checkApart(t, one, step)
			}
		}
	})
	t.Run("chain", func(t *testing.T) { testChain(t, one) })
	t.Run("padding", func(t *testing.T) { testPadding(t, one) })
}

// checkApart requires calls of step rows each, one leaf per call, to give the bits of one call.
func (c *denseCase) checkApart(t *testing.T, d npu.Device, step int) {
	t.Helper()
	if !soak.Long() && step < 12 && c.t > 8*step { // many calls
		return
	}
	whole := *c
	whole.leaves = &leaves{FixedPoint: c.leaves.FixedPoint}
	var parts outputs
	for lo := 0; lo < c.t; lo += step {
		hi := min(c.t, lo+step)
		whole.leaves.ends = append(whole.leaves.ends, int32(hi))
		parts.add(c.rows(lo, hi).run(t, d))
	}
	equalOutputs(t, fmt.Sprintf("%v, %d at a time", c, step), whole.run(t, d), parts)
}

// testChain requires the bits of the chain, computed term by term. It rounds the operands to a few bits, so
// that each product is exact and a separate product and sum equal a fused multiply-add.
func testChain(t *testing.T, d npu.Device) {
	exactOnly(t, d)
	c := newDenseCase(13, 70, 530, 1)
	for _, x := range [][]float32{c.x, c.w} {
		for i := range x {
			x[i] = float32(math.Round(float64(x[i])*256) / 256)
		}
	}
	got := c.run(t, d)
	for i := range c.t {
		for j := range c.n {
			sum := float32(0)
			for e := range c.k {
				sum += c.x[i*c.k+e] * c.w[j*c.k+e]
			}
			require.Equal(t, sum, got.values["y"][i*c.n+j], "row %d, output %d", i, j)
		}
	}
}

// testPadding requires values that are not finite to stay out of the padding.
func testPadding(t *testing.T, d npu.Device) {
	c := newDenseCase(5, 33, 3, 1)
	c.x[4] = float32(math.Inf(1))
	m := newMemory(t, d)
	defer m.free()
	dw, table := m.matrixSums(c.n, c.k), m.matrixSums(c.n, c.k)
	d.LinearBackwardWeight(dw, npu.Sums{}, m.put(c.dy), m.put(c.x), m.leaves(c.leaves))
	d.EmbedBackward(table, m.put(c.x), m.tokens([]int32{32, 0, 31, 32, 1}, c.leaves), c.leaves.FixedPoint)
	require.NotZero(t, m.getMatrixSums(dw).worst)
	require.NotZero(t, m.getMatrixSums(table).worst)
}

// sameDense requires the same bits from all devices.
func sameDense(t *testing.T, want npu.Device, got []npu.Device) {
	sameOutputs(t, want, got, denseCases, 1, 1e18, 1e-22, 1e-40)
}
