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

const normEps = 1e-6

// normCase holds the operands of an RMS norm of t rows of n values in host memory.
type normCase struct {
	t, n            int
	x, w, g, dx, dw []float32 // g is dy; dx and dw are the initial values
}

func newNormCase(t, n int, scale float64) *normCase {
	r := rand.New(rand.NewPCG(uint64(t), uint64(n)))
	return &normCase{
		t: t, n: n, x: normal(r, t*n, scale), w: normal(r, n, 1), g: normal(r, t*n, scale),
		dx: normal(r, t*n, 1), dw: normal(r, n, 1),
	}
}

func (c *normCase) String() string { return fmt.Sprintf("%d rows of %d", c.t, c.n) }

// rows returns the case of rows [lo, hi) alone, with the gradient accumulated so far.
func (c *normCase) rows(lo, hi int, dw []float32) *normCase {
	return &normCase{
		t: hi - lo, n: c.n, w: c.w, dw: dw,
		x: c.x[lo*c.n : hi*c.n], g: c.g[lo*c.n : hi*c.n], dx: c.dx[lo*c.n : hi*c.n],
	}
}

type normResult struct{ y, dx, dxAdded, dw []float32 }

// run calls the kernels on a device. It writes dx once and adds to it once.
func (c *normCase) run(t *testing.T, d npu.Device) normResult {
	t.Helper()
	m := newMemory(t, d)
	x, w, g := m.put(c.x), m.put(c.w), m.put(c.g)
	y, dx, dxAdded := m.nan(len(c.x)), m.nan(len(c.x)), m.put(c.dx)
	dw, dwAgain := m.put(c.dw), m.put(c.dw)
	d.RMSNorm(y, x, w, c.t, normEps)
	d.RMSNormBackward(dx, dw, g, x, w, c.t, normEps, false)
	d.RMSNormBackward(dxAdded, dwAgain, g, x, w, c.t, normEps, true)
	require.NoError(t, d.Sync())
	r := normResult{m.get(y), m.get(dx), m.get(dxAdded), m.get(dw)}
	equal(t, c.String()+" dWeight, with dx added to", r.dw, m.get(dwAgain))
	m.free()
	return r
}

// normCases returns the shapes that every test runs: many short rows, long rows, odd
// sizes.
func normCases(scale float64) []*normCase {
	var all []*normCase
	for _, s := range [][2]int{{1, 1}, {3, 5}, {517, 8}, {40, 16}, {17, 33}, {1030, 64}, {2, 128}, {33, 200}, {40, 511}, {9, 1024}} {
		all = append(all, newNormCase(s[0], s[1], scale))
	}
	return all
}

// testNorm checks the RMS norm and its backward pass.
func testNorm(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range normCases(1) {
			c.checkReference(t, c.run(t, one))
		}
	})
	t.Run("threads", func(t *testing.T) {
		for _, threads := range []int{2, 3, 4} {
			d := device(t, open, threads)
			for _, c := range normCases(1) {
				equalNorms(t, fmt.Sprintf("%v, %d threads", c, threads), c.run(t, one), c.run(t, d))
			}
		}
	})
	t.Run("rows apart", func(t *testing.T) {
		for _, c := range normCases(1) {
			all := c.run(t, one)
			var y, dx, added []float32
			dw := c.dw
			for lo := 0; lo < c.t; lo += max(1, c.t/3) {
				r := c.rows(lo, min(c.t, lo+max(1, c.t/3)), dw).run(t, one)
				y, dx, added, dw = append(y, r.y...), append(dx, r.dx...), append(added, r.dxAdded...), r.dw
			}
			equalNorms(t, c.String(), all, normResult{y, dx, added, dw})
		}
	})
	t.Run("in place", func(t *testing.T) {
		d := device(t, open, 3)
		for _, c := range normCases(1) {
			want := c.run(t, one)
			m := newMemory(t, d)
			x, again, w, g, dw := m.put(c.x), m.put(c.x), m.put(c.w), m.put(c.g), m.put(c.dw)
			d.RMSNorm(x, x, w, c.t, normEps)
			d.RMSNormBackward(g, dw, g, again, w, c.t, normEps, false)
			require.NoError(t, d.Sync())
			equal(t, c.String()+" y", want.y, m.get(x))
			equal(t, c.String()+" dx", want.dx, m.get(g))
			equal(t, c.String()+" dWeight", want.dw, m.get(dw))
			m.free()
		}
	})
	t.Run("extremes", func(t *testing.T) {
		for _, scale := range []float64{0, 1e-30, 1e4} {
			for _, c := range normCases(scale) {
				r := c.run(t, one)
				for name, x := range map[string][]float32{"y": r.y, "dx": r.dx, "dWeight": r.dw} {
					finite(t, fmt.Sprintf("%v at %g: %s", c, scale, name), x)
				}
			}
		}
	})
}

// checkReference compares with the definition, whose derivative it compares with
// central differences.
func (c *normCase) checkReference(t *testing.T, got normResult) {
	t.Helper()
	x, w, g := widen(c.x), widen(c.w), widen(c.g)
	y := reference.Norm(x, w, c.n, normEps)
	dx, dw := reference.NormBackward(g, x, w, c.n, normEps)
	ndx, ndw := reference.NormBackward(c.g, c.x, c.w, c.n, normEps)
	near(t, c.String()+" y", got.y, y, reference.Norm(c.x, c.w, c.n, normEps))
	near(t, c.String()+" dx", got.dx, dx, ndx)
	for i := range dx {
		dx[i] += float64(c.dx[i])
		ndx[i] += c.dx[i]
	}
	near(t, c.String()+" dx added", got.dxAdded, dx, ndx)
	for i := range dw {
		dw[i] += float64(c.dw[i])
		ndw[i] += c.dw[i]
	}
	near(t, c.String()+" dWeight", got.dw, dw, ndw)

	loss := func() float64 {
		sum := 0.0
		for i, v := range reference.Norm(x, w, c.n, normEps) {
			sum += v * g[i]
		}
		return sum
	}
	r := rand.New(rand.NewPCG(uint64(c.n), 3))
	for range 4 {
		i, j := r.IntN(len(x)), r.IntN(len(w))
		require.InDelta(t, reference.Slope(x, i, loss), dx[i]-float64(c.dx[i]), 1e-5*(1+math.Abs(dx[i])), "%v reference dx[%d]", c, i)
		require.InDelta(t, reference.Slope(w, j, loss), dw[j]-float64(c.dw[j]), 1e-5*(1+math.Abs(dw[j])), "%v reference dw[%d]", c, j)
	}
}

// sameNorm requires the same bits from two devices.
func sameNorm(t *testing.T, want, got npu.Device) {
	t.Helper()
	for _, scale := range []float64{1, 1e4, 1e-20, 1e-40} {
		for _, c := range normCases(scale) {
			equalNorms(t, fmt.Sprintf("%v at %g", c, scale), c.run(t, want), c.run(t, got))
		}
	}
}

// equalNorms requires the same bits in all outputs.
func equalNorms(t *testing.T, name string, want, got normResult) {
	t.Helper()
	equal(t, name+" y", want.y, got.y)
	equal(t, name+" dx", want.dx, got.dx)
	equal(t, name+" dx added", want.dxAdded, got.dxAdded)
	equal(t, name+" dWeight", want.dw, got.dw)
}
