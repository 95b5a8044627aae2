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
	"github.com/easyrl/easyrl/npu/bf16"
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

// on returns the case with its operands as a device of these numerics sees them.
func (c *denseCase) on(n npu.Numerics) *denseCase {
	seen := *c
	seen.x, seen.w, seen.bias, seen.dy = round(n, c.x), round(n, c.w), round(n, c.bias), round(n, c.dy)
	return &seen
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

// putMatrix packs row-major float32 values on the device, in memory that holds NaN.
func (m *memory) putMatrix(x []float32, rows, cols int) npu.Matrix {
	m.t.Helper()
	w := npu.Matrix{Buffer: m.nan(m.d.MatrixLen(rows, cols)), Rows: rows, Cols: cols}
	m.d.PackMatrix(w, x)
	return w
}

// weights is putMatrix for weights, which are of the type of the numerics.
func (m *memory) weights(x []float32, rows, cols int) npu.Matrix {
	m.t.Helper()
	w := m.putMatrix(x, rows, cols)
	if dtype := numerics(m.d).Type(); dtype != npu.Float32 {
		from := w.Buffer
		w.Buffer = m.alloc(dtype, from.Len())
		m.d.Convert(w.Buffer, from)
	}
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
	x, w, bias, dy := m.values(c.x), m.weights(c.w, c.n, c.k), m.values(c.bias), m.values(c.dy)
	plain, biased, added, continued := m.nan(c.t*c.n), m.nan(c.t*c.n), m.put(c.y0), m.put(c.y0)
	dx, dxAdded := m.nan(c.t*c.k), m.put(c.dx0)
	dw, dwNoBias, db, l := m.matrixSums(c.n, c.k), m.matrixSums(c.n, c.k), m.sums(c.n), m.leaves(c.leaves)
	d.Linear(plain, x, w, npu.Buffer{}, c.t, npu.Fresh)
	d.Linear(biased, x, w, bias, c.t, npu.Fresh)
	d.Linear(added, x, w, npu.Buffer{}, c.t, npu.Add)
	d.Linear(continued, x, w, npu.Buffer{}, c.t, npu.Continue)
	d.LinearBackwardInput(dx, []npu.Product{{DY: dy, W: w, Block: c.n}}, c.t, false)
	d.LinearBackwardInput(dxAdded, []npu.Product{{DY: dy, W: w, Block: c.n}}, c.t, true)
	d.LinearBackwardWeight(dw, db, dy, x, l)
	d.LinearBackwardWeight(dwNoBias, npu.Sums{}, dy, x, l)
	r := outputs{
		map[string][]float32{
			"y": m.get(plain), "y with bias": m.get(biased), "y added": m.get(added),
			"y continued": m.get(continued), "dx": m.get(dx), "dx added": m.get(dxAdded),
		},
		map[string]sums{"dw": m.getMatrixSums(dw), "dbias": m.getSums(db)},
	}
	if d.Info().Exact {
		require.Equal(t, m.getSums(dw.Sums), m.getSums(dwNoBias.Sums), "%v dw, without a bias", c)
	}
	if dtype := numerics(d).Type(); dtype != npu.Float32 {
		y, yBiased, dxTyped := m.nanAs(dtype, c.t*c.n), m.nanAs(dtype, c.t*c.n), m.nanAs(dtype, c.t*c.k)
		d.Linear(y, x, w, npu.Buffer{}, c.t, npu.Fresh)
		d.Linear(yBiased, x, w, bias, c.t, npu.Fresh)
		d.LinearBackwardInput(dxTyped, []npu.Product{{DY: dy, W: w, Block: c.n}}, c.t, false)
		m.requireRounded(c.String()+" y", r.values["y"], y)
		m.requireRounded(c.String()+" y with bias", r.values["y with bias"], yBiased)
		m.requireRounded(c.String()+" dx", r.values["dx"], dxTyped)
	}
	return r
}

// checkLayout packs the weight, and requires its values to come back, as weights too, and its layout to be right.
func (c *denseCase) checkLayout(t *testing.T, d npu.Device) {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	w := m.putMatrix(c.w, c.n, c.k)
	equal(t, c.String()+" w", c.w, m.getMatrix(w))
	m.requireBlocks(w, c.w)
	if n := numerics(d); n == npu.BF16 {
		back := npu.Matrix{Buffer: m.nan(w.Len()), Rows: c.n, Cols: c.k}
		d.Convert(back.Buffer, m.weights(c.w, c.n, c.k).Buffer)
		equal(t, c.String()+" w, rounded", round(n, c.w), m.getMatrix(back))
	}
}

// requireRounded requires got, activations, to be want, rounded once. On a device that is not exact, they may differ
// by a unit.
func (m *memory) requireRounded(name string, want []float32, got npu.Buffer) {
	m.t.Helper()
	if m.d.Info().Exact {
		equal(m.t, name+", rounded", round(numerics(m.d), want), m.get(got))
		return
	}
	near(m.t, unitBFloat16, name+", rounded", m.get(got), widen(want), want)
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

func (c *denseCase) checkReference(t *testing.T, d npu.Device) {
	t.Helper()
	got := c.run(t, d)
	c = c.on(numerics(d))
	const u = unitFloat32
	y, dx, dw, db := refDense(c, widen)
	ny, ndx, ndw, ndb := refDense(c, same32)
	near(t, u, c.String()+" y added", got.values["y added"], y, ny)
	near(t, u, c.String()+" dx added", got.values["dx added"], dx, ndx)
	near(t, u, c.String()+" dw", got.sums["dw"].floats(c.leaves), dw, ndw)
	near(t, u, c.String()+" dbias", got.sums["dbias"].floats(c.leaves), db, ndb)
	zero, bias := *c, *c
	zero.y0, zero.dx0 = make([]float32, c.t*c.n), make([]float32, c.t*c.k)
	bias.y0 = nil
	for range c.t {
		bias.y0 = append(bias.y0, c.bias...)
	}
	y, dx, _, _ = refDense(&zero, widen)
	ny, ndx, _, _ = refDense(&zero, same32)
	near(t, u, c.String()+" y", got.values["y"], y, ny)
	near(t, u, c.String()+" dx", got.values["dx"], dx, ndx)
	y, _, _, _ = refDense(&bias, widen)
	ny, _, _, _ = refDense(&bias, same32)
	near(t, u, c.String()+" y with bias", got.values["y with bias"], y, ny)
}

// testDense checks the linear layer and its backward pass.
func testDense(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range denseCases(1) {
			c.checkReference(t, one)
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
	t.Run("chain", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range denseCases(1) {
			if c.t < 8 || c.t > 33 || soak.Long() { // the rows of the others are much like these
				c.checkChain(t, one)
			}
		}
		for _, scale := range append(scales(numerics(one)), 1e18, 1e-40) {
			newDenseCase(13, 35, 70, scale).checkChain(t, one)
		}
	})
	t.Run("long chains in pieces", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range denseCases(1) {
			c.checkPieces(t, one)
		}
	})
	t.Run("rounding", func(t *testing.T) { testLinearRounding(t, one) })
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

// checkChain requires the bits of the chains, computed term by term.
func (c *denseCase) checkChain(t *testing.T, d npu.Device) {
	t.Helper()
	got, n := c.run(t, d).values, numerics(d)
	c = c.on(n)
	want := map[string][]float32{}
	add := func(output string, x float32) { want[output] = append(want[output], x) }
	for i := range c.t {
		x, dy := c.x[i*c.k:(i+1)*c.k], c.dy[i*c.n:(i+1)*c.n]
		for j := range c.n {
			y0, bias, w := c.y0[i*c.n+j], c.bias[j], c.w[j*c.k:(j+1)*c.k]
			fresh, continued := chain(n, 0, x, w, 1), chain(n, y0, x, w, 1)
			add("y", fresh)
			add("y continued", continued)
			if n == npu.BF16 {
				add("y added", y0+fresh)
				add("y with bias", fresh+bias)
			} else {
				add("y added", continued)
				add("y with bias", chain(n, bias, x, w, 1))
			}
		}
		for j := range c.k {
			add("dx", chain(n, 0, dy, c.w[j:], c.k))
			add("dx added", chain(n, c.dx0[i*c.k+j], dy, c.w[j:], c.k))
		}
	}
	for output, x := range want {
		equal(t, c.String()+" chain "+output, x, got[output])
	}
}

// checkPieces requires chains that are continued in pieces of terms to have the bits of one call. In BF16, pieces have
// whole steps.
func (c *denseCase) checkPieces(t *testing.T, d npu.Device) {
	t.Helper()
	for _, piece := range []int{7, 16, 48} {
		if numerics(d) == npu.BF16 && piece%bf16.Step != 0 || piece >= c.k {
			continue
		}
		m := newMemory(t, d)
		whole, pieces := m.put(c.y0), m.put(c.y0)
		d.Linear(whole, m.values(c.x), m.weights(c.w, c.n, c.k), npu.Buffer{}, c.t, npu.Continue)
		for lo := 0; lo < c.k; lo += piece {
			hi := min(c.k, lo+piece)
			w := m.weights(columns(c.w, c.k, lo, hi), c.n, hi-lo)
			d.Linear(pieces, m.values(columns(c.x, c.k, lo, hi)), w, npu.Buffer{}, c.t, npu.Continue)
		}
		equal(t, fmt.Sprintf("%v, %d terms at a time", c, piece), m.get(whole), m.get(pieces))
		m.free()
	}
}

// columns returns columns lo to hi of x, which has rows of cols values.
func columns(x []float32, cols, lo, hi int) (some []float32) {
	for row := range slices.Chunk(x, cols) {
		some = append(some, row[lo:hi]...)
	}
	return some
}

// testLinearRounding requires sums of a row of exact parts to round as bf16.Round does, at its edges.
func testLinearRounding(t *testing.T, d npu.Device) {
	if numerics(d) == npu.FP32 {
		t.Skip("nothing is rounded")
	}
	exactOnly(t, d)
	const up = 0x1p40 // keeps the parts of small values above 2^-62
	var x []float32
	edges := roundingEdges()
	for _, v := range edges {
		row := make([]float32, 6)
		if v < 1 && v > -1 {
			copy(row[3:], parts(v*up))
		} else {
			copy(row, parts(v))
		}
		x = append(x, row...)
	}
	m := newMemory(t, d)
	defer m.free()
	w := m.weights([]float32{1, 1, 1, 1 / up, 1 / up, 1 / up}, 1, 6)
	sums, rounded := m.nan(len(edges)), m.nanValues(len(edges))
	d.Linear(sums, m.values(x), w, npu.Buffer{}, len(edges), npu.Fresh)
	d.Linear(rounded, m.values(x), w, npu.Buffer{}, len(edges), npu.Fresh)
	for i, v := range edges {
		edges[i] = v + 0 // a chain is never -0
	}
	equal(t, "sums of parts", edges, m.get(sums))
	equal(t, "rounded sums", round(npu.BF16, edges), m.get(rounded))
}

// parts returns three numbers of bfloat16 whose sum is x.
func parts(x float32) []float32 {
	p := make([]float32, 3)
	for i := range p {
		if x-x != 0 { // not finite
			p[i] = x
			break
		}
		p[i] = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
		x -= p[i]
	}
	return p
}

// testPadding requires values that are not finite to stay out of the padding.
func testPadding(t *testing.T, d npu.Device) {
	c := newDenseCase(5, 33, 3, 1)
	c.x[4] = float32(math.Inf(1))
	m := newMemory(t, d)
	defer m.free()
	dw, table := m.matrixSums(c.n, c.k), m.matrixSums(c.n, c.k)
	d.LinearBackwardWeight(dw, npu.Sums{}, m.values(c.dy), m.values(c.x), m.leaves(c.leaves))
	d.EmbedBackward(table, m.put(c.x), m.tokens([]int32{32, 0, 31, 32, 1}, c.leaves), c.leaves.FixedPoint)
	require.NotZero(t, m.getMatrixSums(dw).worst)
	require.NotZero(t, m.getMatrixSums(table).worst)
}

// sameDense requires the same bits from all devices.
func sameDense(t *testing.T, want npu.Device, got []npu.Device) {
	sameOutputs(t, want, got, denseCases, scales(numerics(want))...)
}
