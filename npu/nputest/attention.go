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

// forest is a named list of segments for attention tests.
type forest struct {
	name     string
	segments []npu.Segment
}

// tree appends segments of the given lengths and parents to the forest. Parents count
// from the first segment appended.
func (f *forest) tree(lens, parents []int32) {
	base, start := int32(len(f.segments)), int32(f.rows())
	for i, n := range lens {
		parent := parents[i]
		if parent >= 0 {
			parent += base
		}
		f.segments = append(f.segments, npu.Segment{Start: start, Len: n, Parent: parent})
		start += n
	}
}

// rows returns the number of rows of the forest, with those between segments.
func (f *forest) rows() int {
	n := 0
	for _, s := range f.segments {
		n = max(n, int(s.Start+s.Len))
	}
	return n
}

// forests returns the layouts that every attention test runs: lone sequences, a
// group, a deep tree, an empty segment, several trees, and two trees with interleaved
// segments.
func forests() []forest {
	var all []forest
	for _, n := range []int32{1, 2, 17, 40} {
		f := forest{name: fmt.Sprintf("sequence of %d", n)}
		f.tree([]int32{n}, []int32{-1})
		all = append(all, f)
	}
	group := forest{name: "group"}
	group.tree([]int32{10, 30, 7, 1, 19}, []int32{-1, 0, 0, 0, 0})
	deep := forest{name: "depth 4"}
	deep.tree([]int32{5, 3, 4, 2, 17, 0, 6}, []int32{-1, 0, 1, 2, 1, 0, 5})
	several := forest{name: "several trees"}
	several.tree([]int32{40}, []int32{-1})
	several.tree([]int32{1, 1, 2, 33}, []int32{-1, 0, 1, 0})
	several.tree([]int32{8, 16, 16}, []int32{-1, 0, 1})
	several.tree([]int32{2}, []int32{-1})
	woven := forest{name: "woven trees", segments: []npu.Segment{
		{Start: 20, Len: 9, Parent: -1}, {Start: 0, Len: 20, Parent: -1}, {Start: 61, Len: 3, Parent: 0},
		{Start: 29, Len: 32, Parent: 1}, {Start: 66, Len: 18, Parent: 2}, {Start: 64, Len: 2, Parent: 1},
	}}
	return append(all, group, deep, several, woven)
}

// headShapes returns shapes with and without groups of query heads and windows, and with narrow, wide and odd
// dimensions.
func headShapes() []npu.Heads {
	return []npu.Heads{
		{Q: 1, KV: 1, Dim: 8}, {Q: 4, KV: 2, Dim: 5}, {Q: 3, KV: 1, Dim: 33}, {Q: 4, KV: 2, Dim: 32},
		{Q: 7, KV: 1, Dim: 64}, {Q: 2, KV: 2, Dim: 59}, {Q: 10, KV: 2, Dim: 16}, {Q: 1, KV: 1, Dim: 128},
		{Q: 4, KV: 2, Dim: 12, Window: 1}, {Q: 3, KV: 3, Dim: 32, Window: 9},
	}
}

// attentionCase holds the operands of an attention in host memory.
type attentionCase struct {
	forest
	h          npu.Heads
	q, k, v, g []float32 // g is dOut
}

// newAttentionCase draws operands of the given magnitude.
func newAttentionCase(f forest, h npu.Heads, seed uint64, scale float64) *attentionCase {
	r := rand.New(rand.NewPCG(seed, 1))
	n := f.rows()
	return &attentionCase{
		forest: f, h: h,
		q: normal(r, n*h.Q*h.Dim, scale), k: normal(r, n*h.KV*h.Dim, scale),
		v: normal(r, n*h.KV*h.Dim, scale), g: normal(r, n*h.Q*h.Dim, scale),
	}
}

// on returns the case with its operands as a device of these numerics sees them.
func (c *attentionCase) on(n npu.Numerics) *attentionCase {
	seen := *c
	seen.q, seen.k, seen.v, seen.g = round(n, c.q), round(n, c.k), round(n, c.v), round(n, c.g)
	return &seen
}

// rowsOf returns the given rows of a [T, width] tensor, in that order.
func rowsOf(x []float32, rows []int, width int) []float32 {
	var y []float32
	for _, row := range rows {
		y = append(y, x[row*width:(row+1)*width]...)
	}
	return y
}

// pick returns a case of the given segments, whose rows are the given rows of c.
func (c *attentionCase) pick(segments []npu.Segment, rows []int) *attentionCase {
	wq, wk := c.h.Q*c.h.Dim, c.h.KV*c.h.Dim
	return &attentionCase{
		forest: forest{name: c.name, segments: segments}, h: c.h,
		q: rowsOf(c.q, rows, wq), k: rowsOf(c.k, rows, wk), v: rowsOf(c.v, rows, wk), g: rowsOf(c.g, rows, wq),
	}
}

// attentionResult holds the outputs of both kernels.
type attentionResult struct {
	out, stats, dq, dk, dv []float32
}

// run calls both kernels on a device. Outputs start as NaN to expose values that a
// kernel does not write.
func (c *attentionCase) run(t *testing.T, d npu.Device) attentionResult {
	t.Helper()
	m := newMemory(t, d)
	q, k, v, g := m.values(c.q), m.values(c.k), m.values(c.v), m.values(c.g)
	out, stats, segments := m.nanValues(len(c.q)), m.nan(2*len(c.q)/c.h.Dim), m.segments(c.segments)
	dq, dk, dv := m.nanValues(len(c.q)), m.nanValues(len(c.k)), m.nanValues(len(c.v))
	d.Attention(out, stats, q, k, v, segments, c.h)
	d.AttentionBackward(dq, dk, dv, g, out, stats, q, k, v, segments, c.h)
	r := attentionResult{m.get(out), m.get(stats), m.get(dq), m.get(dk), m.get(dv)}
	m.free()
	return r
}

// forward calls Attention alone and returns out.
func (c *attentionCase) forward(t *testing.T, d npu.Device) []float32 {
	t.Helper()
	m := newMemory(t, d)
	defer m.free()
	out := m.nanValues(len(c.q))
	d.Attention(out, npu.Buffer{}, m.values(c.q), m.values(c.k), m.values(c.v), m.segments(c.segments), c.h)
	return m.get(out)
}

// testAttention checks attention, its backward pass and its cached form.
func testAttention(t *testing.T, open func(threads int) (npu.Device, error)) {
	t.Run("reference", func(t *testing.T) { testAttentionReference(t, open) })
	t.Run("threads", func(t *testing.T) { testAttentionThreads(t, open) })
	t.Run("shared prompt", func(t *testing.T) { testSharedPrompt(t, open) })
	t.Run("trees apart", func(t *testing.T) { testTreesApart(t, open) })
	t.Run("future unread", func(t *testing.T) { testFutureUnread(t, open) })
	t.Run("other trees unread", func(t *testing.T) { testTreesUnread(t, open) })
	t.Run("in place", func(t *testing.T) { testAttentionInPlace(t, open) })
	t.Run("extremes", func(t *testing.T) { testAttentionExtremes(t, open) })
	t.Run("long", func(t *testing.T) { testAttentionLong(t, open) })
	t.Run("chunks", func(t *testing.T) { testAttentionChunks(t, open) })
	t.Run("parts", func(t *testing.T) { testAttentionParts(t, open) })
	t.Run("cached", func(t *testing.T) { testAttentionCached(t, open) })
}

// testAttentionReference compares with the dense definition in float64.
func testAttentionReference(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	for i, f := range forests() {
		for j, h := range headShapes() {
			c := newAttentionCase(f, h, uint64(100*i+j), 1).on(numerics(d))
			name, u := fmt.Sprintf("%s %v", f.name, h), unitOf(numerics(d))
			q, k, v, g := widen(c.q), widen(c.k), widen(c.v), widen(c.g)
			out, lse := reference.Attention(q, k, v, f.segments, h)
			dq, dk, dv := reference.AttentionBackward(g, out, q, k, v, f.segments, h)
			naiveOut, naiveLSE := reference.Attention(c.q, c.k, c.v, f.segments, h)
			ndq, ndk, ndv := reference.AttentionBackward(c.g, naiveOut, c.q, c.k, c.v, f.segments, h)
			r := c.run(t, d)
			typicalOut, typicalDV := rms(out), rms(dv)
			if u == unitBFloat16 { // terms of the size of v and g have rounded factors
				typicalOut, typicalDV = max(rms(out), rms(v)), max(rms(dv), 4*rms(g))
			}
			nearOf(t, u, name+" out", r.out, out, naiveOut, typicalOut)
			nearOf(t, u, name+" stats", logSums(r.stats), lse, naiveLSE, max(rms(lse), 1))
			// dP - D is a difference of values of the size of g.
			nearOf(t, u, name+" dq", r.dq, dq, ndq, max(rms(dq), 4*rms(g)))
			nearOf(t, u, name+" dk", r.dk, dk, ndk, max(rms(dk), 4*rms(g)))
			nearOf(t, u, name+" dv", r.dv, dv, ndv, typicalDV)
		}
	}
}

// logSums returns the logarithms of the sums that stats describe.
func logSums(stats []float32) (lse []float32) {
	for i := 0; i < len(stats); i += 2 {
		lse = append(lse, float32(float64(stats[i])*math.Ln2-math.Log(float64(stats[i+1]))))
	}
	return lse
}

// testAttentionThreads checks that the number of threads changes no bit.
func testAttentionThreads(t *testing.T, open func(threads int) (npu.Device, error)) {
	one, all := device(t, open, 1), teams(t, open, 2, 3, 4)
	if len(all) == 0 {
		return
	}
	for i, f := range forests() {
		for _, h := range headShapes()[1:5] {
			c := newAttentionCase(f, h, uint64(i), 1)
			want := c.run(t, one)
			for _, d := range all {
				equalResults(t, fmt.Sprintf("%s %v, %d threads", f.name, h, npu.Threads(d)), want, c.run(t, d))
			}
		}
	}
}

// testSharedPrompt checks that a prompt computed once for all its responses gives the
// same bits as a prompt repeated for each. Gradients may differ by the order of their
// sums (Periodic Asynchrony, section 4.2).
func testSharedPrompt(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	lens := []int32{30, 7, 1, 19, 64}
	for n, prompt := range []int32{1, 10, 16, 45} {
		for i, h := range headShapes() {
			if (n+i)%2 != 0 && !soak.Long() {
				continue
			}
			var f forest
			f.tree(append([]int32{prompt}, lens...), []int32{-1, 0, 0, 0, 0, 0})
			shared := newAttentionCase(f, h, uint64(i), 1)
			clear(shared.g[:int(prompt)*h.Q*h.Dim]) // a shared prompt has no loss of its own
			got := shared.run(t, d)
			wq, wk := h.Q*h.Dim, h.KV*h.Dim
			dk, dv := make([]float64, int(prompt)*wk), make([]float64, int(prompt)*wk)
			for s, length := range lens {
				var rows []int
				for row := range int(prompt) {
					rows = append(rows, row)
				}
				for row := range int(length) {
					rows = append(rows, int(f.segments[s+1].Start)+row)
				}
				whole := []npu.Segment{{Start: 0, Len: prompt + length, Parent: -1}}
				if numerics(d) == npu.BF16 { // steps of gradients start with a segment
					whole = []npu.Segment{{Start: 0, Len: prompt, Parent: -1}, {Start: prompt, Len: length}}
				}
				want := shared.pick(whole, rows).run(t, d)
				own := rows[prompt:]
				equal(t, "out", want.out, rowsOf(got.out, rows, wq))
				equal(t, "stats", want.stats, rowsOf(got.stats, rows, 2*h.Q))
				equal(t, "dq", want.dq, rowsOf(got.dq, rows, wq))
				equal(t, "dk", want.dk[len(dk):], rowsOf(got.dk, own, wk))
				equal(t, "dv", want.dv[len(dv):], rowsOf(got.dv, own, wk))
				for e := range dk {
					dk[e] += float64(want.dk[e])
					dv[e] += float64(want.dv[e])
				}
			}
			tolerance := 1e-5
			if numerics(d) == npu.BF16 { // the terms of dk and dv are rounded
				tolerance = float64(len(lens)) * float64(unitBFloat16)
			}
			within(t, "prompt dk", got.dk[:len(dk)], dk, tolerance)
			within(t, "prompt dv", got.dv[:len(dv)], dv, tolerance)
		}
	}
}

// testTreesApart checks that a tree gives the same bits alone and among other trees.
func testTreesApart(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	var f forest
	f.tree([]int32{12, 9, 40}, []int32{-1, 0, 0})
	f.tree([]int32{3, 20, 17, 5}, []int32{-1, 0, 1, 0})
	f.tree([]int32{33}, []int32{-1})
	for i, h := range headShapes() {
		all := newAttentionCase(f, h, uint64(i), 1)
		got := all.run(t, d)
		for _, span := range [][2]int{{0, 3}, {3, 7}, {7, 8}} {
			var alone []npu.Segment
			var rows []int
			first := f.segments[span[0]].Start
			for _, s := range f.segments[span[0]:span[1]] {
				for row := range int(s.Len) {
					rows = append(rows, int(s.Start)+row)
				}
				s.Start -= first
				if s.Parent >= 0 {
					s.Parent -= int32(span[0])
				}
				alone = append(alone, s)
			}
			want := all.pick(alone, rows).run(t, d)
			wq, wk := h.Q*h.Dim, h.KV*h.Dim
			equalResults(t, fmt.Sprint("tree at ", span[0]), want, attentionResult{
				rowsOf(got.out, rows, wq), rowsOf(got.stats, rows, 2*h.Q), rowsOf(got.dq, rows, wq),
				rowsOf(got.dk, rows, wk), rowsOf(got.dv, rows, wk),
			})
		}
	}
}

// testAttentionLong compares a row deep in a long sequence with the reference of that
// row alone.
func testAttentionLong(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	h := npu.Heads{Q: 5, KV: 1, Dim: 7}
	var f forest
	f.tree([]int32{520, 37}, []int32{-1, 0})
	c := newAttentionCase(f, h, 3, 1).on(numerics(d))
	got := c.run(t, d)
	last := f.rows() - 1
	q, k, v := widen(c.q[last*h.Q*h.Dim:]), widen(c.k), widen(c.v)
	see := make([]bool, f.rows())
	for j := range see {
		see[j] = true
	}
	for head := range h.Q {
		p, _, l := reference.Softmax(q, k, see, 0, head, h)
		want := make([]float64, h.Dim)
		for j := range p {
			for e := range want {
				want[e] += p[j] / l * v[j*h.Dim+e]
			}
		}
		within(t, "out", got.out[(last*h.Q+head)*h.Dim:][:h.Dim], want, loosened(numerics(d), 1e-5))
	}
	for _, one := range teams(t, open, 1) {
		equalResults(t, "threads", c.run(t, one), got)
	}
}

// partCases are attentions whose segments have several parts of rows, with and without a window.
func partCases() []*attentionCase {
	f := forest{name: "parts"}
	f.tree([]int32{npu.PartRows + 70, 3, 40}, []int32{-1, 0, 0})
	f.tree([]int32{2*npu.PartRows + 1}, []int32{-1})
	return []*attentionCase{
		newAttentionCase(f, npu.Heads{Q: 2, KV: 1, Dim: 4}, 1, 1),
		newAttentionCase(f, npu.Heads{Q: 3, KV: 1, Dim: 4, Window: npu.KeySplit + 5}, 2, 1),
	}
}

// straddlingCases are attentions in which tiles of keys and splits hold rows of several segments.
func straddlingCases() []*attentionCase {
	f := forest{name: "segments within tiles"}
	f.tree([]int32{npu.KeySplit + 7, 3, 67, npu.KeyTile}, []int32{-1, 0, 1, 2})
	return []*attentionCase{
		newAttentionCase(f, npu.Heads{Q: 2, KV: 1, Dim: 40}, 3, 1),
		newAttentionCase(f, npu.Heads{Q: 3, KV: 1, Dim: 65, Window: npu.KeyTile + 5}, 4, 1),
	}
}

// testAttentionParts checks gradients that are summed over several parts of rows.
func testAttentionParts(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 1)
	for _, c := range partCases() {
		want := c.run(t, d)
		c, tolerance := c.on(numerics(d)), loosened(numerics(d), 1e-3)
		for _, many := range teams(t, open, 3) {
			equalResults(t, fmt.Sprintf("%v, %d threads", c.h, npu.Threads(many)), want, c.run(t, many))
		}
		// Σ_j dq_j·q_j = Σ_j dk_j·k_j, and Σ_j dv_j·v_j = Σ_i dOut_i·out_i.
		sum := func(x, y []float32) (s float64) {
			for i := range x {
				s += float64(x[i]) * float64(y[i])
			}
			return s
		}
		require.InDelta(t, sum(want.dq, c.q), sum(want.dk, c.k), tolerance*math.Sqrt(sum(want.dk, want.dk)))
		require.InDelta(t, sum(c.g, want.out), sum(want.dv, c.v), tolerance*math.Sqrt(sum(want.dv, want.dv)))
	}
}

// sameAttention requires the same bits from all devices, also for huge values and
// values below the smallest normal number.
func sameAttention(t *testing.T, want npu.Device, got []npu.Device) {
	t.Helper()
	small := 1e-20
	if numerics(want) == npu.BF16 {
		small = 1e-10 // products are below 2^-62
	}
	for i, f := range forests() {
		for j, h := range headShapes() {
			scale := []float64{1, 1e4, small}[(i+j)%3]
			c := newAttentionCase(f, h, uint64(100*i+j), scale)
			r, cached := c.run(t, want), c.decode(t, want, rand.New(rand.NewPCG(1, 2)))
			for _, d := range got {
				name := fmt.Sprintf("%s: %s %v at %g", d.Info().Name, f.name, h, scale)
				equalResults(t, name, r, c.run(t, d))
				equal(t, name+" cached", cached, c.decode(t, d, rand.New(rand.NewPCG(1, 2))))
			}
		}
	}
	for _, c := range append(partCases(), straddlingCases()...) {
		r := c.run(t, want)
		for _, d := range got {
			equalResults(t, fmt.Sprintf("%s: %s %v", d.Info().Name, c.name, c.h), r, c.run(t, d))
		}
	}
}

// equalResults requires the same bits in all outputs.
func equalResults(t *testing.T, name string, want, got attentionResult) {
	t.Helper()
	equal(t, name+" out", want.out, got.out)
	equal(t, name+" stats", want.stats, got.stats)
	equal(t, name+" dq", want.dq, got.dq)
	equal(t, name+" dk", want.dk, got.dk)
	equal(t, name+" dv", want.dv, got.dv)
}
