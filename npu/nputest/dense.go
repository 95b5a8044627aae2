package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// denseCase holds the operands of a linear layer and its backward pass in host
// memory: t rows, a weight [n, k]. Fields ending in 0 are the outputs' initial
// values.
type denseCase struct {
	t, n, k           int
	x, w, bias, dy    []float32
	y0, dx0, dw0, db0 []float32
}

func newDenseCase(t, n, k int, scale float64) *denseCase {
	r := rand.New(rand.NewPCG(uint64(t*1000+n), uint64(k)))
	return &denseCase{
		t: t, n: n, k: k,
		x: normal(r, t*k, scale), w: normal(r, n*k, 1), bias: normal(r, n, scale), dy: normal(r, t*n, scale),
		y0: normal(r, t*n, scale), dx0: normal(r, t*k, scale), dw0: normal(r, n*k, scale), db0: normal(r, n, scale),
	}
}

func (c *denseCase) String() string { return fmt.Sprintf("%d rows, weight [%d, %d]", c.t, c.n, c.k) }

// rows returns the case of rows [lo, hi) alone, with the gradients accumulated so
// far.
func (c *denseCase) rows(lo, hi int, dw, db []float32) *denseCase {
	return &denseCase{
		t: hi - lo, n: c.n, k: c.k, w: c.w, bias: c.bias, dw0: dw, db0: db,
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
	return append(all, newDenseCase(397, 40, 37, scale), newDenseCase(2, 70, 530, scale), newDenseCase(14, 530, 67, scale),
		newDenseCase(530, 33, 14, scale), newDenseCase(13, 9, 401, scale))
}

type denseResult struct{ plain, biased, added, dx, dxAdded, dw, db []float32 }

// putMatrix packs row-major values on the device.
func (m *memory) putMatrix(x []float32, rows, cols int) npu.Matrix {
	m.t.Helper()
	w := npu.Matrix{Buffer: m.put(make([]float32, m.d.MatrixLen(rows, cols))), Rows: rows, Cols: cols}
	m.d.PackMatrix(w, x)
	return w
}

// getMatrix reads a matrix back. It requires zero padding: packing the values again
// gives the same memory.
func (m *memory) getMatrix(w npu.Matrix) []float32 {
	m.t.Helper()
	x := make([]float32, w.Rows*w.Cols)
	m.d.UnpackMatrix(x, w)
	again := m.putMatrix(x, w.Rows, w.Cols)
	equal(m.t, "layout of an unpacked and packed matrix", m.get(again.Buffer), m.get(w.Buffer))
	return x
}

// requireBlocks packs a matrix block by block and requires the memory of w, which was
// packed in one call.
func (m *memory) requireBlocks(w npu.Matrix, x []float32) {
	m.t.Helper()
	got := m.put(make([]float32, w.Len()))
	for row := 0; row < w.Rows; row += npu.MatrixBlock {
		n := min(npu.MatrixBlock, w.Rows-row)
		at := m.d.MatrixLen(row, w.Cols)
		if row == 0 {
			at = 0
		}
		part := npu.Matrix{Buffer: got.Slice(at, at+m.d.MatrixLen(n, w.Cols)), Rows: n, Cols: w.Cols}
		m.d.PackMatrix(part, x[row*w.Cols:(row+n)*w.Cols])
	}
	equal(m.t, "layout of a matrix packed block by block", m.get(w.Buffer), m.get(got))
	if host := w.Float32s(); host != nil {
		want := make([]float32, len(host))
		for i, v := range x {
			row, col := i/w.Cols, i%w.Cols
			want[(row/npu.MatrixBlock*w.Cols+col)*npu.MatrixBlock+row%npu.MatrixBlock] = v
		}
		equal(m.t, "layout in the host's memory", want, host)
	}
}

func (c *denseCase) run(t *testing.T, d npu.Device) denseResult {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	x, w, bias, dy := m.put(c.x), m.putMatrix(c.w, c.n, c.k), m.put(c.bias), m.put(c.dy)
	plain, biased, added := m.nan(c.t*c.n), m.nan(c.t*c.n), m.put(c.y0)
	dx, dxAdded := m.nan(c.t*c.k), m.put(c.dx0)
	dw, dwNoBias, db := m.putMatrix(c.dw0, c.n, c.k), m.putMatrix(c.dw0, c.n, c.k), m.put(c.db0)
	d.Linear(plain, x, w, npu.Buffer{}, c.t, false)
	d.Linear(biased, x, w, bias, c.t, false)
	d.Linear(added, x, w, npu.Buffer{}, c.t, true)
	d.LinearBackwardInput(dx, dy, w, c.t, false)
	d.LinearBackwardInput(dxAdded, dy, w, c.t, true)
	d.LinearBackwardWeight(dw, db, dy, x, c.t)
	d.LinearBackwardWeight(dwNoBias, npu.Buffer{}, dy, x, c.t)
	require.NoError(t, d.Sync())
	r := denseResult{m.get(plain), m.get(biased), m.get(added), m.get(dx), m.get(dxAdded), m.getMatrix(dw), m.get(db)}
	equal(t, c.String()+" dw, without a bias", r.dw, m.getMatrix(dwNoBias))
	equal(t, c.String()+" w", c.w, m.getMatrix(w))
	m.requireBlocks(w, c.w)
	return r
}

// refDense computes the definition, in float64 or naively in float32.
func refDense[F reference.Float](c *denseCase, to func([]float32) []F) (y, dx, dw, db []F) {
	t, n, k := c.t, c.n, c.k
	x, w, dy := to(c.x), to(c.w), to(c.dy)
	ones := to(filled(t, 1))
	y = reference.Product(to(c.y0), x, w, t, n, k, k, 1, k, 1)
	dx = reference.Product(to(c.dx0), dy, w, t, k, n, n, 1, 1, k)
	dw = reference.Product(to(c.dw0), dy, x, n, k, t, 1, n, 1, k)
	db = reference.Product(to(c.db0), ones, dy, 1, n, t, 0, 1, 1, n)
	return y, dx, dw, db
}

func same32(x []float32) []float32 { return x }

func (c *denseCase) checkReference(t *testing.T, got denseResult) {
	t.Helper()
	y, dx, dw, db := refDense(c, widen)
	ny, ndx, ndw, ndb := refDense(c, same32)
	near(t, c.String()+" y added", got.added, y, ny)
	near(t, c.String()+" dx added", got.dxAdded, dx, ndx)
	near(t, c.String()+" dw", got.dw, dw, ndw)
	near(t, c.String()+" dbias", got.db, db, ndb)
	zero, bias := *c, *c
	zero.y0, zero.dx0 = make([]float32, c.t*c.n), make([]float32, c.t*c.k)
	bias.y0 = nil
	for range c.t {
		bias.y0 = append(bias.y0, c.bias...)
	}
	y, dx, _, _ = refDense(&zero, widen)
	ny, ndx, _, _ = refDense(&zero, same32)
	near(t, c.String()+" y", got.plain, y, ny)
	near(t, c.String()+" dx", got.dx, dx, ndx)
	y, _, _, _ = refDense(&bias, widen)
	ny, _, _, _ = refDense(&bias, same32)
	near(t, c.String()+" y with bias", got.biased, y, ny)
}

func equalDense(t *testing.T, name string, want, got denseResult) {
	t.Helper()
	equal(t, name+" y", want.plain, got.plain)
	equal(t, name+" y with bias", want.biased, got.biased)
	equal(t, name+" y added", want.added, got.added)
	equal(t, name+" dx", want.dx, got.dx)
	equal(t, name+" dx added", want.dxAdded, got.dxAdded)
	equal(t, name+" dw", want.dw, got.dw)
	equal(t, name+" dbias", want.db, got.db)
}

// testDense checks the linear layer and its backward pass.
func testDense(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range denseCases(1) {
			c.checkReference(t, c.run(t, one))
		}
	})
	t.Run("threads", func(t *testing.T) {
		for _, threads := range []int{2, 3, 4} {
			d := device(t, open, threads)
			for _, c := range denseCases(1) {
				equalDense(t, fmt.Sprintf("%v, %d threads", c, threads), c.run(t, one), c.run(t, d))
			}
			for limit := range threads + 2 { // the ends are clamped to 1 and threads
				d.Limit(limit)
				for _, c := range denseCases(1) {
					equalDense(t, fmt.Sprintf("%v, %d of %d threads", c, limit, threads), c.run(t, one), c.run(t, d))
				}
			}
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		for _, c := range denseCases(1) {
			for _, step := range []int{1, 5, 12} {
				c.checkApart(t, one, step)
			}
		}
	})
	t.Run("chain", func(t *testing.T) { testChain(t, one) })
	t.Run("padding", func(t *testing.T) { testPadding(t, one) })
}

// checkApart requires calls over step rows each to give the bits of one call. Sums
// over rows continue from call to call.
func (c *denseCase) checkApart(t *testing.T, d npu.Device, step int) {
	t.Helper()
	if c.t > 40 && step == 1 {
		return
	}
	all, parts := c.run(t, d), denseResult{dw: c.dw0, db: c.db0}
	for lo := 0; lo < c.t; lo += step {
		r := c.rows(lo, min(c.t, lo+step), parts.dw, parts.db).run(t, d)
		parts.plain, parts.biased = append(parts.plain, r.plain...), append(parts.biased, r.biased...)
		parts.added, parts.dx = append(parts.added, r.added...), append(parts.dx, r.dx...)
		parts.dxAdded, parts.dw, parts.db = append(parts.dxAdded, r.dxAdded...), r.dw, r.db
	}
	equalDense(t, fmt.Sprintf("%v, %d at a time", c, step), all, parts)
}

// testChain compares with the chain over terms ascending. Operands of few bits make
// each product exact, so that a sum of products equals a fused one.
func testChain(t *testing.T, d npu.Device) {
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
			require.Equal(t, sum, got.plain[i*c.n+j], "row %d, output %d", i, j)
		}
	}
}

// testPadding requires values that are not finite to stay out of the padding.
func testPadding(t *testing.T, d npu.Device) {
	c := newDenseCase(5, 33, 3, 1)
	c.x[4] = float32(math.Inf(1))
	m := newMemory(t, d)
	defer m.free()
	dw, table := m.putMatrix(c.dw0, c.n, c.k), m.putMatrix(c.dw0, c.n, c.k)
	d.LinearBackwardWeight(dw, npu.Buffer{}, m.put(c.dy), m.put(c.x), c.t)
	d.EmbedBackward(table, m.put(c.x), []int32{32, 0, 31, 32, 1})
	require.NoError(t, d.Sync())
	m.getMatrix(dw)
	m.getMatrix(table)
}

// sameDense requires the same bits from two devices.
func sameDense(t *testing.T, want, got npu.Device) {
	for _, scale := range []float64{1, 1e18, 1e-22, 1e-40} {
		for _, c := range denseCases(scale) {
			equalDense(t, fmt.Sprintf("%v at %g", c, scale), c.run(t, want), c.run(t, got))
		}
	}
}

type rowsResult struct{ embedded, dTable, gathered, scattered []float32 }

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
	table, dTable := m.putMatrix(w, rows, cols), m.putMatrix(dw, rows, cols)
	y, x, gathered, scattered := m.nan(n*cols), m.put(w), m.nan(n*cols), m.put(dw)
	d.Embed(y, table, ids)
	d.EmbedBackward(dTable, m.put(dy), ids)
	d.GatherRows(gathered, x, ids, cols)
	d.ScatterAddRows(scattered, m.put(dy), ids, cols)
	require.NoError(t, d.Sync())
	for i, id := range ids {
		for c := range cols {
			dw[int(id)*cols+c] += dy[i*cols+c]
		}
		require.Equal(t, w[int(id)*cols:(int(id)+1)*cols], m.get(y)[i*cols:(i+1)*cols])
	}
	res := rowsResult{m.get(y), m.getMatrix(dTable), m.get(gathered), m.get(scattered)}
	equal(t, "gathered rows", res.embedded, res.gathered)
	equal(t, "gradient of the table", dw, res.dTable)
	equal(t, "scattered rows", dw, res.scattered)
	return res
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
	equal(t, "gradient of the table", a.dTable, b.dTable)
}
