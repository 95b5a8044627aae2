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
			q, k, v, g := m.put(c.q), m.put(c.k), m.put(c.v), m.put(c.g)
			out, stats, dk, dv := m.nan(len(c.q)), m.put(want.stats), m.nan(len(c.k)), m.nan(len(c.v))
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
