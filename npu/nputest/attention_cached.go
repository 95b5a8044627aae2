package nputest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
)

// testAttentionCached checks that decoding position by position through a paged cache
// gives the bits of one attention over all positions, whatever else is in the cache. A
// device that is not exact may round differently.
func testAttentionCached(t *testing.T, open func(threads int) (npu.Device, error)) {
	for n, d := range append([]npu.Device{device(t, open, 1)}, teams(t, open, 3)...) {
		for i, f := range forests() {
			for j, h := range headShapes() {
				if n > 0 && (i+j)%2 != 0 && !soak.Long() { // with more threads, only half of the cases
					continue
				}
				c := newAttentionCase(f, h, uint64(10*i+j), 1)
				name, want, got := fmt.Sprintf("%s %v", f.name, h), c.forward(t, d),
					c.decode(t, d, rand.New(rand.NewPCG(uint64(i), 5)))
				if d.Info().Exact {
					equal(t, name, want, got)
				} else {
					within(t, name, got, widen(want), loosened(numerics(d), 1e-5))
				}
			}
		}
	}
}

// decode computes every row's output through a cache, position by position.
func (c *attentionCase) decode(t *testing.T, d npu.Device, r *rand.Rand) []float32 {
	return c.prefill(t, d, r, 1)
}

// prefill computes every row's output through a cache, chunk positions of a sequence at a time. Each segment becomes a
// sequence of its own, with copies of its ancestors' rows. Pages are in random order, and slots that no
// row was written to hold NaN or large values.
func (c *attentionCase) prefill(t *testing.T, d npu.Device, r *rand.Rand, chunk int) []float32 {
	t.Helper()
	seqs := make([][]int, len(c.segments)) // rows on each segment's path from the root
	longest := 0
	for s, seg := range c.segments {
		if seg.Parent >= 0 {
			seqs[s] = append(seqs[s], seqs[seg.Parent]...)
		}
		for i := range int(seg.Len) {
			seqs[s] = append(seqs[s], int(seg.Start)+i)
		}
		longest = max(longest, len(seqs[s]))
	}
	stride := longest/npu.PageSize + 2
	pages := r.Perm(stride * len(seqs))
	table := make([]int32, len(pages))
	for i, page := range pages {
		table[i] = int32(page)
	}
	m, b := newMemory(t, d), npu.NewBatch(d)
	defer m.free()
	defer b.Free()
	wq, wk := c.h.Q*c.h.Dim, c.h.KV*c.h.Dim
	var stale []float32
	for page := range pages {
		fill := float32(100)
		if page%2 == 0 {
			fill = float32(math.NaN())
		}
		stale = append(stale, filled(npu.PageSize*wk, fill)...)
	}
	cacheK, cacheV, pageTable := m.values(stale), m.values(stale), m.ints(table...)
	all := make([]float32, len(c.q))
	for first := 0; first < longest; first += chunk {
		var rows []int
		var slots, active, lens []int32
		for s, seq := range seqs {
			for p := first; p < min(first+chunk, len(seq)); p++ {
				rows = append(rows, seq[p])
				slots = append(slots, table[s*stride+p/npu.PageSize]*npu.PageSize+int32(p%npu.PageSize))
				active = append(active, int32(s))
				lens = append(lens, int32(p+1))
			}
		}
		q, k, v := m.values(rowsOf(c.q, rows, wq)), m.values(rowsOf(c.k, rows, wk)), m.values(rowsOf(c.v, rows, wk))
		out := m.nanValues(q.Len())
		require.NoError(t, b.Begin(len(slots)+3*len(active)+1))
		to, tables := b.Ints(slots), b.Tables(pageTable, stride, active, lens)
		b.Upload()
		d.CacheWrite(cacheK, cacheV, k, v, to, c.h)
		d.AttentionCached(out, q, cacheK, cacheV, &tables, c.h)
		got := m.get(out)
		for i, row := range rows {
			copy(all[row*wq:(row+1)*wq], got[i*wq:(i+1)*wq])
		}
	}
	return all
}

// testAttentionChunks requires equal bits of a forest, of the same rows as lone sequences, and of prefills in chunks,
// for prompts that end at every position of a tile of keys, and for windows and groups of query heads.
func testAttentionChunks(t *testing.T, open func(threads int) (npu.Device, error)) {
	d := device(t, open, 2)
	exactOnly(t, d)
	shapes := []npu.Heads{
		{Q: 1, KV: 1, Dim: 8}, {Q: 4, KV: 2, Dim: 16, Window: 50}, {Q: 7, KV: 1, Dim: 4},
		{Q: 2, KV: 1, Dim: 16, Window: 64},
		{Q: 3, KV: 1, Dim: 8, Window: 513},
	}
	chunks := []int{64, 7, 513, 1}
	for end := range npu.KeyTile {
		prompt := int32(1 + end)
		if end%8 == 1 { // beyond a split
			prompt += npu.KeySplit - 2*npu.KeyTile
		}
		var f forest
		f.tree([]int32{prompt, 3, 67, int32(npu.KeyTile - end)}, []int32{-1, 0, 0, 1})
		h, chunk := shapes[end%len(shapes)], chunks[end/2%len(chunks)]
		if chunk == 1 && prompt > npu.KeyTile && !soak.Long() { // one position at a time takes long
			chunk = 5
		}
		c := newAttentionCase(f, h, uint64(end), 1)
		name, want := fmt.Sprintf("prompt of %d, %v, chunks of %d", prompt, h, chunk), c.forward(t, d)
		equal(t, name, want, c.prefill(t, d, rand.New(rand.NewPCG(uint64(end), 7)), chunk))
		for s := range f.segments { // its path as a lone sequence
			var rows []int
			for g := s; g >= 0; g = int(f.segments[g].Parent) {
				var own []int
				for i := range int(f.segments[g].Len) {
					own = append(own, int(f.segments[g].Start)+i)
				}
				rows = append(own, rows...)
			}
			alone := c.pick([]npu.Segment{{Len: int32(len(rows)), Parent: -1}}, rows)
			equal(t, name+", alone", rowsOf(want, rows, h.Q*h.Dim), alone.forward(t, d))
		}
	}
}
