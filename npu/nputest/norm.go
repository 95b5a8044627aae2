package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

const normEps = 1e-6

// normCase holds the operands of an RMS norm in host memory: t rows of heads vectors of n
// values.
type normCase struct {
	t, heads, n int
	x, w, g, dx []float32 // g is dy; dx holds the initial values
	activations bool      // whether x is activations
	leaves      *leaves
}

func newNormCase(t, heads, n int, scale float64) *normCase {
	r := rand.New(rand.NewPCG(uint64(t), uint64(n)))
	all := t * heads * n
	return &normCase{
		t: t, heads: heads, n: n, x: normal(r, all, scale), w: normal(r, n, 1), g: normal(r, all, scale),
		dx:     normal(r, all, 1),
		leaves: &leaves{format(scale), cut(r, t)},
	}
}

func (c *normCase) String() string {
	text := fmt.Sprintf("%d rows of %d vectors of %d", c.t, c.heads, c.n)
	if c.activations {
		text += " activations"
	}
	return text
}

// dtype returns the type of x and dx.
func (c *normCase) dtype(n npu.Numerics) npu.DType {
	if c.activations {
		return n.Type()
	}
	return npu.Float32
}

// on returns the case with its operands as a device of these numerics sees them.
func (c *normCase) on(n npu.Numerics) *normCase {
	seen := *c
	seen.w, seen.g = round(n, c.w), round(n, c.g)
	if c.activations {
		seen.x, seen.dx = round(n, c.x), round(n, c.dx)
	}
	return &seen
}

// part returns the case of heads [lo, hi) of all rows.
func (c *normCase) part(lo, hi int) *normCase {
	pick := func(all []float32) (some []float32) {
		for row := range slices.Chunk(all, c.heads*c.n) {
			some = append(some, row[lo*c.n:hi*c.n]...)
		}
		return some
	}
	return &normCase{t: c.t, heads: hi - lo, n: c.n, w: c.w, leaves: c.leaves, x: pick(c.x), g: pick(c.g),
		dx: pick(c.dx), activations: c.activations}
}

// rows returns the case of rows [lo, hi) alone, as one leaf.
func (c *normCase) rows(lo, hi int) *normCase {
	row := c.heads * c.n
	return &normCase{
		t: hi - lo, heads: c.heads, n: c.n, w: c.w, leaves: c.leaves.of(hi - lo),
		x: c.x[lo*row : hi*row], g: c.g[lo*row : hi*row], dx: c.dx[lo*row : hi*row], activations: c.activations,
	}
}

// run calls the kernels on a device. It writes dx once and adds to it once.
func (c *normCase) run(t *testing.T, d npu.Device) outputs {
	t.Helper()
	m := newMemory(t, d)
	dtype := c.dtype(numerics(d))
	x, w, g := m.putAs(dtype, c.x), m.values(c.w), m.values(c.g)
	y, dx, dxAdded := m.nanValues(len(c.x)), m.nanAs(dtype, len(c.x)), m.putAs(dtype, c.dx)
	dw, dwAgain, l := m.sums(c.n), m.sums(c.n), m.leaves(c.leaves)
	d.RMSNorm(y, x, w, c.t*c.heads, normEps)
	d.RMSNormBackward(dx, dw, g, x, w, c.heads, normEps, false, l)
	d.RMSNormBackward(dxAdded, dwAgain, g, x, w, c.heads, normEps, true, l)
	r := outputs{
		map[string][]float32{"y": m.get(y), "dx": m.get(dx), "dx added": m.get(dxAdded)},
		map[string]sums{"dWeight": m.getSums(dw)},
	}
	if d.Info().Exact {
		require.Equal(t, r.sums["dWeight"], m.getSums(dwAgain), "%v dWeight, with dx added to", c)
	}
	m.free()
	return r
}

// normCases returns the shapes that every test runs: many short rows, long rows, odd
// sizes.
func normCases(scale float64) []*normCase {
	var all []*normCase
	for _, s := range [][3]int{
		{1, 1, 1}, {3, 1, 5}, {517, 1, 8}, {40, 1, 16}, {17, 1, 33}, {1030, 1, 64}, {2, 1, 128}, {33, 1, 200},
		{40, 1, 511}, {9, 1, 1024},
		{3, 2, 5}, {117, 3, 8}, {300, 4, 64}, {5, 32, 80}, {4, 5, 2050},
	} {
		all = append(all, newNormCase(s[0], s[1], s[2], scale))
	}
	for _, s := range [][3]int{{5, 2, 33}, {19, 1, 40}, {40, 4, 64}, {3, 7, 129}} {
		c := newNormCase(s[0], s[1], s[2], scale)
		c.activations = true
		all = append(all, c)
	}
	return all
}

// testNorm checks the RMS norm and its backward pass.
func testNorm(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range normCases(1) {
			c.checkReference(t, one)
		}
	})
	t.Run("with projections", func(t *testing.T) { testNormLinear(t, one) })
	t.Run("threads", func(t *testing.T) {
		sameOutputs(t, one, teams(t, open, 2, 3, 4), normCases, 1)
	})
	t.Run("rows apart", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range normCases(1) {
			whole, step := *c, max(1, c.t/3)
			whole.leaves = &leaves{FixedPoint: c.leaves.FixedPoint}
			var parts outputs
			for lo := 0; lo < c.t; lo += step {
				hi := min(c.t, lo+step)
				whole.leaves.ends = append(whole.leaves.ends, int32(hi))
				parts.add(c.rows(lo, hi).run(t, one))
			}
			equalOutputs(t, c.String(), whole.run(t, one), parts)
		}
	})
	t.Run("heads apart", func(t *testing.T) { testNormHeads(t, one) })
	t.Run("in place", func(t *testing.T) {
		exactOnly(t, one)
		d := device(t, open, 3)
		for _, c := range normCases(1) {
			if c.dtype(numerics(d)) != numerics(d).Type() {
				continue // x and y have different types
			}
			want := c.run(t, one)
			m := newMemory(t, d)
			x, again, w, g, dw := m.values(c.x), m.values(c.x), m.values(c.w), m.values(c.g), m.sums(c.n)
			d.RMSNorm(x, x, w, c.t*c.heads, normEps)
			d.RMSNormBackward(g, dw, g, again, w, c.heads, normEps, false, m.leaves(c.leaves))
			equal(t, c.String()+" y", want.values["y"], m.get(x))
			equal(t, c.String()+" dx", want.values["dx"], m.get(g))
			require.Equal(t, want.sums["dWeight"], m.getSums(dw), "%v dWeight", c)
			m.free()
		}
	})
	t.Run("extremes", func(t *testing.T) {
		for _, scale := range []float64{0, 1e-30, 1e4} {
			for _, c := range normCases(scale) {
				finiteOutputs(t, fmt.Sprintf("%v at %g:", c, scale), c.run(t, one))
			}
		}
	})
}

// testNormHeads requires the same bits if the heads of a call are divided over two calls.
func testNormHeads(t *testing.T, d npu.Device) {
	exactOnly(t, d)
	for _, scale := range []float64{1, 1e4, 1e-20} {
		for _, c := range normCases(scale) {
			half := c.heads / 2
			if half == 0 {
				continue
			}
			want, low, high := c.run(t, d), c.part(0, half).run(t, d), c.part(half, c.heads).run(t, d)
			dw := low.sums["dWeight"]
			dw.add(high.sums["dWeight"])
			require.Equal(t, want.sums["dWeight"], dw, "%v at %g dWeight", c, scale)
			dx := make([]float32, 0, len(c.dx))
			for row := range c.t {
				dx = append(dx, low.values["dx"][row*half*c.n:][:half*c.n]...)
				dx = append(dx, high.values["dx"][row*(c.heads-half)*c.n:][:(c.heads-half)*c.n]...)
			}
			equal(t, fmt.Sprintf("%v at %g dx", c, scale), want.values["dx"], dx)
		}
	}
}

// checkReference compares with the reference in float64, and the derivatives of the reference with central
// differences.
func (c *normCase) checkReference(t *testing.T, d npu.Device) {
	t.Helper()
	got := c.run(t, d)
	c = c.on(numerics(d))
	u, uDX := unitOf(numerics(d)), unitFloat32
	if c.dtype(numerics(d)) != npu.Float32 {
		uDX = u
	}
	x, w, g := widen(c.x), widen(c.w), widen(c.g)
	y := reference.Norm(x, w, c.n, normEps)
	dx, dw := reference.NormBackward(g, x, w, c.n, normEps)
	ndx, ndw := reference.NormBackward(c.g, c.x, c.w, c.n, normEps)
	near(t, u, c.String()+" y", got.values["y"], y, reference.Norm(c.x, c.w, c.n, normEps))
	near(t, uDX, c.String()+" dx", got.values["dx"], dx, ndx)
	for i := range dx {
		dx[i] += float64(c.dx[i])
		ndx[i] += c.dx[i]
	}
	near(t, uDX, c.String()+" dx added", got.values["dx added"], dx, ndx)
	near(t, unitFloat32, c.String()+" dWeight", got.sums["dWeight"].floats(c.leaves), dw, ndw)

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
		require.InDelta(t, reference.Slope(x, i, loss), dx[i]-float64(c.dx[i]), 1e-5*(1+math.Abs(dx[i])),
			"%v reference dx[%d]", c, i)
		require.InDelta(t, reference.Slope(w, j, loss), dw[j], 1e-5*(1+math.Abs(dw[j])), "%v reference dw[%d]", c, j)
	}
}

// sameNorm requires the same bits from all devices.
func sameNorm(t *testing.T, want npu.Device, got []npu.Device) {
	sameOutputs(t, want, got, normCases, 1, 1e4, 1e-18, 1e-20, 1e-40)
}
