package nputest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest/reference"
)

// inputCase holds the operands of a gradient with respect to an input of t rows of k
// values: for each product, dy [t, rows] and a weight [rows, k].
type inputCase struct {
	t, k     int
	products []inputProduct
	dx0      []float32
}

type inputProduct struct {
	rows, block int
	dy, w       []float32
}

// newInputCase returns a case of the given products, each {rows, block}.
func newInputCase(t, k int, scale float64, products ...[2]int) *inputCase {
	r := rand.New(rand.NewPCG(uint64(t*1000+k), uint64(len(products))))
	c := &inputCase{t: t, k: k, dx0: normal(r, t*k, scale)}
	for _, p := range products {
		c.products = append(c.products, inputProduct{rows: p[0], block: p[1], dy: normal(r, t*p[0], scale),
			w: normal(r, p[0]*k, 1)})
	}
	return c
}

func inputCases(scale float64) []*inputCase {
	shapes := [][][2]int{
		{{70, 70}}, {{70, 33}}, {{1, 1}}, {{257, 300}}, // one product
		{{5, 1}, {5, 1}}, {{7, 3}, {9, 3}},
		{{24, 12}, {12, 6}, {12, 6}}, {{32, 16}, {16, 8}, {16, 8}}, {{24, 8}, {24, 8}, {24, 8}}, // attention
		{{640, 320}, {160, 80}, {160, 80}}, {{512, 256}, {256, 128}, {256, 128}}, {{240, 240}, {80, 80}, {80, 80}},
		{{37, 32}, {37, 32}}, {{31, 32}, {31, 32}}, {{384, 32}, {384, 32}}, {{530, 32}, {530, 32}}, // feed-forward
	}
	var all []*inputCase
	for _, products := range shapes {
		for _, size := range [][2]int{{1, 17}, {2, 32}, {7, 65}, {33, 33}} {
			all = append(all, newInputCase(size[0], size[1], scale, products...))
		}
	}
	attention := [][2]int{{80, 40}, {40, 20}, {40, 20}}
	return append(all, newInputCase(397, 37, scale, attention...), newInputCase(14, 401, scale, attention...))
}

func (c *inputCase) String() string {
	text := fmt.Sprintf("%d rows of %d", c.t, c.k)
	for _, p := range c.products {
		text += fmt.Sprintf(", %d terms in blocks of %d", p.rows, p.block)
	}
	return text
}

// pieces calls take with the terms of row i and column j in the order of the chain, in pieces between which no step
// of BF16 reaches: the rows of a block of a product.
func (c *inputCase) pieces(i, j int, take func(dy, w []float32)) {
	for block := 0; block*c.products[0].block < c.products[0].rows; block++ {
		for _, p := range c.products {
			lo, hi := block*p.block, min(p.rows, (block+1)*p.block)
			take(p.dy[i*p.rows+lo:i*p.rows+hi], p.w[lo*c.k+j:])
		}
	}
}

func (c *inputCase) run(t *testing.T, d npu.Device) outputs {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	var products []npu.Product
	for _, p := range c.products {
		products = append(products, npu.Product{DY: m.values(p.dy), W: m.weights(p.w, p.rows, c.k), Block: p.block})
	}
	plain, onto := m.nan(c.t*c.k), m.put(c.dx0)
	d.LinearBackwardInput(plain, products, c.t, false)
	d.LinearBackwardInput(onto, products, c.t, true)
	r := outputs{values: map[string][]float32{"dx": m.get(plain), "dx added": m.get(onto)}}
	if numerics(d) == npu.BF16 {
		dx := m.nanValues(c.t * c.k)
		d.LinearBackwardInput(dx, products, c.t, false)
		m.requireRounded(c.String()+" dx", r.values["dx"], dx)
	}
	return r
}

// checkReference compares with the sum of the products in float64.
func (c *inputCase) checkReference(t *testing.T, d npu.Device) {
	t.Helper()
	got := c.run(t, d)
	c = c.on(numerics(d))
	want, naive := make([]float64, c.t*c.k), make([]float32, c.t*c.k)
	wantAdded, naiveAdded := widen(c.dx0), c.dx0
	for _, p := range c.products {
		want = reference.Product(want, widen(p.dy), widen(p.w), c.t, c.k, p.rows, p.rows, 1, 1, c.k)
		naive = reference.Product(naive, p.dy, p.w, c.t, c.k, p.rows, p.rows, 1, 1, c.k)
		wantAdded = reference.Product(wantAdded, widen(p.dy), widen(p.w), c.t, c.k, p.rows, p.rows, 1, 1, c.k)
		naiveAdded = reference.Product(naiveAdded, p.dy, p.w, c.t, c.k, p.rows, p.rows, 1, 1, c.k)
	}
	near(t, unitFloat32, c.String()+" dx", got.values["dx"], want, naive)
	near(t, unitFloat32, c.String()+" dx added", got.values["dx added"], wantAdded, naiveAdded)
}

// checkChain requires the bits of the chain, computed term by term in its order.
func (c *inputCase) checkChain(t *testing.T, d npu.Device) {
	t.Helper()
	got, n := c.run(t, d), numerics(d)
	c = c.on(n)
	dx, added := make([]float32, c.t*c.k), slices.Clone(c.dx0)
	for i := range c.t {
		for j := range c.k {
			c.pieces(i, j, func(dy, w []float32) {
				dx[i*c.k+j] = chain(n, dx[i*c.k+j], dy, w, c.k)
				added[i*c.k+j] = chain(n, added[i*c.k+j], dy, w, c.k)
			})
		}
	}
	equal(t, c.String()+" chain", dx, got.values["dx"])
	equal(t, c.String()+" chain, continued", added, got.values["dx added"])
}

// on returns the case with its operands as a device of these numerics sees them.
func (c *inputCase) on(n npu.Numerics) *inputCase {
	seen := *c
	seen.products = nil
	for _, p := range c.products {
		p.dy, p.w = round(n, p.dy), round(n, p.w)
		seen.products = append(seen.products, p)
	}
	return &seen
}

// rows returns the case of rows [lo, hi) alone.
func (c *inputCase) rows(lo, hi int) *inputCase {
	part := &inputCase{t: hi - lo, k: c.k, dx0: c.dx0[lo*c.k : hi*c.k]}
	for _, p := range c.products {
		p.dy = p.dy[lo*p.rows : hi*p.rows]
		part.products = append(part.products, p)
	}
	return part
}

// testInput checks the gradient with respect to an input.
func testInput(t *testing.T, open func(threads int) (npu.Device, error)) {
	one := device(t, open, 1)
	t.Run("reference", func(t *testing.T) {
		for _, c := range inputCases(1) {
			c.checkReference(t, one)
		}
	})
	t.Run("chain", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range inputCases(1) {
			c.checkChain(t, one)
		}
	})
	t.Run("threads", func(t *testing.T) {
		sameOutputs(t, one, teams(t, open, 3), inputCases, 1)
	})
	t.Run("rows apart", func(t *testing.T) {
		exactOnly(t, one)
		for _, c := range inputCases(1) {
			var parts outputs
			for lo := 0; lo < c.t; lo += 5 {
				parts.add(c.rows(lo, min(c.t, lo+5)).run(t, one))
			}
			equalOutputs(t, c.String()+", 5 rows at a time", c.run(t, one), parts)
		}
	})
}

func sameInput(t *testing.T, want npu.Device, got []npu.Device) {
	sameOutputs(t, want, got, inputCases, scales(numerics(want))...)
}
