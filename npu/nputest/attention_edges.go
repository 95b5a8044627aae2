package nputest

import (
	"fmt"
	"testing"

	"github.com/easyrl/easyrl/npu"
)

// testFutureUnread checks that a row's output does not depend on later rows, even if
// they are large.
func testFutureUnread(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	const large = 1000
	var f forest
	f.tree([]int32{21, 35}, []int32{-1, 0})
	for i, h := range headShapes() {
		c := newAttentionCase(f, h, uint64(i), 1)
		want := c.run(t, d)
		for _, cut := range []int{0, 7, 20, 21, 30, 54} {
			bad := *c
			bad.q, bad.k, bad.v = spoil(c.q, (cut+1)*h.Q*h.Dim, large), spoil(c.k, (cut+1)*h.KV*h.Dim, large),
				spoil(c.v, (cut+1)*h.KV*h.Dim, large)
			got := bad.run(t, d)
			n := (cut + 1) * h.Q * h.Dim
			equal(t, fmt.Sprintf("%v rows to %d", h, cut), want.out[:n], got.out[:n])
			equal(t, fmt.Sprintf("%v dq to %d", h, cut), want.dq[:n], got.dq[:n])
		}
	}
}

// testTreesUnread checks that NaN in another tree, or in rows of no segment, reach no row of a tree.
func testTreesUnread(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	// Between the segments of a tree of 5, 30 and 37 rows lie another tree and rows of no segment.
	f := forest{segments: []npu.Segment{
		{Start: 3, Len: 5, Parent: -1}, {Start: 8, Len: 20, Parent: -1}, {Start: 31, Len: 30, Parent: 0},
		{Start: 61, Len: 9, Parent: 1}, {Start: 77, Len: 37, Parent: 2}, {Start: 114, Len: 16, Parent: 1},
	}}
	var rows []int
	alone := []npu.Segment{{Len: 5, Parent: -1}, {Start: 5, Len: 30}, {Start: 35, Len: 37, Parent: 1}}
	for _, s := range []int{0, 2, 4} {
		for i := range int(f.segments[s].Len) {
			rows = append(rows, int(f.segments[s].Start)+i)
		}
	}
	own := make([]bool, f.rows())
	for _, row := range rows {
		own[row] = true
	}
	for i, h := range headShapes() {
		c := newAttentionCase(f, h, uint64(i), 1)
		wq, wk := h.Q*h.Dim, h.KV*h.Dim
		for row := range own {
			if !own[row] {
				copy(c.q[row*wq:], nans(wq))
				copy(c.g[row*wq:], nans(wq))
				copy(c.k[row*wk:], nans(wk))
				copy(c.v[row*wk:], nans(wk))
			}
		}
		got := c.run(t, d)
		equalResults(t, fmt.Sprint(h), c.pick(alone, rows).run(t, d), attentionResult{
			rowsOf(got.out, rows, wq), rowsOf(got.stats, rows, 2*h.Q), rowsOf(got.dq, rows, wq),
			rowsOf(got.dk, rows, wk), rowsOf(got.dv, rows, wk),
		})
	}
}

// spoil returns a copy of x with every value from index n on replaced by by.
func spoil(x []float32, n int, by float32) []float32 {
	y := append([]float32(nil), x...)
	for i := n; i < len(y); i++ {
		y[i] = by
	}
	return y
}

// testAttentionInPlace checks that stats may be the zero Buffer and that dq may share the memory of dOut.
func testAttentionInPlace(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	for i, f := range forests() {
		for _, h := range headShapes()[:4] {
			c := newAttentionCase(f, h, uint64(i), 1)
			want := c.run(t, d)
			m := newMemory(t, d)
			q, k, v, g := m.values(c.q), m.values(c.k), m.values(c.v), m.values(c.g)
			out, stats, dk, dv := m.nanValues(len(c.q)), m.put(want.stats), m.nanValues(len(c.k)), m.nanValues(len(c.v))
			segments := m.segments(c.segments)
			d.Attention(out, npu.Buffer{}, q, k, v, segments, h)
			d.AttentionBackward(g, dk, dv, g, out, stats, q, k, v, segments, h)
			equalResults(t, f.name, want, attentionResult{m.get(out), m.get(stats), m.get(g), m.get(dk), m.get(dv)})
			m.free()
		}
	}
}

// testAttentionExtremes checks that large operands give finite results.
func testAttentionExtremes(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	for i, f := range forests() {
		for _, h := range headShapes() {
			r := newAttentionCase(f, h, uint64(i), 100).run(t, d)
			for name, x := range map[string][]float32{"out": r.out, "stats": r.stats, "dq": r.dq, "dk": r.dk,
				"dv": r.dv} {
				finite(t, fmt.Sprintf("%s %v %s", f.name, h, name), x)
			}
		}
	}
}
