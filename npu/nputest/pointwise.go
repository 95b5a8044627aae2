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

// testPointwise checks rotary positions and SwiGLU.
func testPointwise(t *testing.T, open func(threads int) (npu.Device, error)) {
	t.Run("rope", func(t *testing.T) { testRope(t, open) })
	t.Run("swiglu", func(t *testing.T) { testSwiGLU(t, open) })
	t.Run("swiglu in place", func(t *testing.T) { testSwiGLUInPlace(t, open) })
	t.Run("swiglu extremes", func(t *testing.T) { testSwiGLUExtremes(t, open) })
}

// ropeCase holds x [rows, heads, dim], its positions and a table of angles.
type ropeCase struct {
	heads, dim int
	positions  []int32
	x, table   []float32
}

func newRopeCase(rows, heads, dim int) *ropeCase {
	r := rand.New(rand.NewPCG(uint64(rows*heads), uint64(dim)))
	const longest = 300
	c := &ropeCase{heads: heads, dim: dim, x: normal(r, rows*heads*dim, 1), table: make([]float32, longest*dim)}
	for p := range longest {
		for i := range dim / 2 {
			angle := float64(p) * math.Pow(10000, -2*float64(i)/float64(dim))
			c.table[p*dim+i], c.table[p*dim+dim/2+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	for range rows {
		c.positions = append(c.positions, int32(r.IntN(longest)))
	}
	return c
}

// run rotates x on a device, and x the other way.
func (c *ropeCase) run(t *testing.T, d npu.Device) outputs {
	t.Helper()
	m := newMemory(t, d)
	x, y, table, positions := m.values(c.x), m.values(c.x), m.put(c.table), m.ints(c.positions...)
	d.Rope(x, table, positions, c.heads, c.dim, false)
	d.Rope(y, table, positions, c.heads, c.dim, true)
	r := outputs{values: map[string][]float32{"rotated": m.get(x), "rotated back": m.get(y)}}
	m.free()
	return r
}

// on returns the case with its operands as a device of these numerics sees them.
func (c *ropeCase) on(n npu.Numerics) *ropeCase {
	seen := *c
	seen.x = round(n, c.x)
	return &seen
}

func (c *ropeCase) String() string {
	return fmt.Sprintf("%d rows of %d heads of %d", len(c.positions), c.heads, c.dim)
}

func (c *ropeCase) reference(x []float64, inverse bool) []float64 {
	return reference.Rope(x, c.table, c.positions, c.heads, c.dim, inverse)
}

// ropeCases ignores the scale, because a rotation is linear.
func ropeCases(float64) []*ropeCase {
	var all []*ropeCase
	for _, s := range [][3]int{{1, 1, 2}, {3, 2, 8}, {40, 3, 10}, {17, 4, 32}, {5, 1, 66}, {129, 2, 64},
		{300, 5, 128}} {
		all = append(all, newRopeCase(s[0], s[1], s[2]))
	}
	return all
}

func testRope(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	for _, c := range ropeCases(1) {
		got, x, tolerance := c.run(t, one), widen(round(numerics(one), c.x)), float64(unitOf(numerics(one)))
		within(t, c.String()+" rotated", got.values["rotated"], c.reference(x, false), tolerance)
		within(t, c.String()+" rotated back", got.values["rotated back"], c.reference(x, true), tolerance)
	}
	sameOutputs(t, one, teams(t, open, 2, 4), ropeCases, 1)
}

// swigluCase holds the operands of SwiGLU and its backward pass.
type swigluCase struct{ gate, up, dy []float32 }

func swigluCases(scale float64) []*swigluCase {
	r := rand.New(rand.NewPCG(11, 12))
	return []*swigluCase{{normal(r, 9001, scale), normal(r, 9001, 1), normal(r, 9001, 1)}}
}

func (c *swigluCase) String() string { return fmt.Sprintf("swiglu of %d values", len(c.gate)) }

func (c *swigluCase) on(n npu.Numerics) *swigluCase {
	return &swigluCase{round(n, c.gate), round(n, c.up), round(n, c.dy)}
}

func (c *swigluCase) run(t *testing.T, d npu.Device) outputs {
	return runSwiGLU(t, d, c.gate, c.up, c.dy)
}

// runSwiGLU calls SwiGLU and SwiGLUBackward on a device.
func runSwiGLU(t *testing.T, d npu.Device, gate, up, dy []float32) outputs {
	t.Helper()
	m := newMemory(t, d)
	g, u, e := m.values(gate), m.values(up), m.values(dy)
	y, dGate, dUp := m.nanValues(len(gate)), m.nanValues(len(gate)), m.nanValues(len(gate))
	d.SwiGLU(y, g, u)
	d.SwiGLUBackward(dGate, dUp, e, g, u)
	r := outputs{values: map[string][]float32{"y": m.get(y), "dGate": m.get(dGate), "dUp": m.get(dUp)}}
	m.free()
	return r
}

func testSwiGLU(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	many := teams(t, open, 2, 3)
	for _, n := range []int{1, 15, 16, 33, 1000, 4096, 4097, 20011} {
		r := rand.New(rand.NewPCG(uint64(n), 9))
		gate, up, dy := normal(r, n, 3), normal(r, n, 1), normal(r, n, 1)
		gate, up, dy = round(numerics(one), gate), round(numerics(one), up), round(numerics(one), dy)
		u := unitOf(numerics(one))
		got := runSwiGLU(t, one, gate, up, dy)
		y, dGate, dUp := reference.SwiGLU(widen(gate), widen(up), widen(dy))
		ny, ndGate, ndUp := reference.SwiGLU(gate, up, dy)
		near(t, u, fmt.Sprint(n, " y"), got.values["y"], y, ny)
		near(t, u, fmt.Sprint(n, " dGate"), got.values["dGate"], dGate, ndGate)
		near(t, u, fmt.Sprint(n, " dUp"), got.values["dUp"], dUp, ndUp)
		for _, i := range []int{0, n / 2, n - 1} {
			g, u, e := widen(gate[i:i+1]), widen(up[i:i+1]), widen(dy[i:i+1])
			loss := func() float64 {
				v, _, _ := reference.SwiGLU(g, u, e)
				return v[0] * e[0]
			}
			require.InDelta(t, reference.Slope(g, 0, loss), dGate[i], 1e-7, "reference dGate[%d]", i)
			require.InDelta(t, reference.Slope(u, 0, loss), dUp[i], 1e-7, "reference dUp[%d]", i)
		}
		for _, d := range many {
			equalOutputs(t, fmt.Sprintf("%d values, %d threads", n, npu.Threads(d)), got, runSwiGLU(t, d, gate, up, dy))
		}
	}
}

// samePointwise requires the same bits from all devices.
func samePointwise(t *testing.T, want npu.Device, got []npu.Device) {
	t.Helper()
	sameOutputs(t, want, got, ropeCases, 1)
	sameOutputs(t, want, got, swigluCases, 1, 30, 1e4, 1e-18, 1e-20, 1e-40)
}

// testSwiGLUInPlace checks that the derivatives may overwrite their operands.
func testSwiGLUInPlace(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	r := rand.New(rand.NewPCG(4, 4))
	gate, up, dy := normal(r, 9001, 3), normal(r, 9001, 1), normal(r, 9001, 1)
	want := runSwiGLU(t, d, gate, up, dy)
	m := newMemory(t, d)
	g, u, e := m.values(gate), m.values(up), m.values(dy)
	d.SwiGLUBackward(g, u, e, g, u)
	equal(t, "dGate", want.values["dGate"], m.get(g))
	equal(t, "dUp", want.values["dUp"], m.get(u))
	m.free()
}

// testSwiGLUExtremes checks that SwiGLU tends to its limit at saturated gates and is never NaN.
func testSwiGLUExtremes(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	gate := round(numerics(d), []float32{0, -1e4, 1e4, -88.8, 88.8, -103.9, -200, 3e38, -3e38})
	relative := float64(unitOf(numerics(d)))
	smallest := 1e-30
	if numerics(d) == npu.BF16 {
		smallest = 0x1p-62
	}
	ones := filled(len(gate), 1)
	got := runSwiGLU(t, d, gate, ones, ones)
	y, dGate, _ := reference.SwiGLU(widen(gate), widen(ones), widen(ones))
	for i := range gate {
		require.InDelta(t, y[i], got.values["y"][i], relative*math.Abs(y[i])+smallest, "y at %v", gate[i])
		require.InDelta(t, y[i], got.values["dUp"][i], relative*math.Abs(y[i])+smallest, "dUp at %v", gate[i])
		require.InDelta(t, dGate[i], got.values["dGate"][i], max(1e-5, relative), "dGate at %v", gate[i])
	}
}
