package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/cpu"
)

// attention is a case of attention in BF16.
type attention struct {
	name          string
	segments      []npu.Segment
	h             npu.Heads
	rows          int
	q, k, v, dOut []bf16.Number
}

// attentionResult holds what the kernels write. Rows in no segment keep what they held before.
type attentionResult struct {
	out, dq, dk, dv []bf16.Number
	stats           []float32
}

// nan is what memory that no kernel may read holds.
const nan = bf16.Number(0x7fc0)

// newAttention draws normal operands of some scale, those of rows in no segment are NaN.
func newAttention(name string, segments []npu.Segment, h npu.Heads, scale float64, seed uint64) *attention {
	a := &attention{name: fmt.Sprintf("%s %+v scale %g", name, h, scale), segments: segments, h: h}
	for _, s := range segments {
		a.rows = max(a.rows, int(s.Start+s.Len))
	}
	a.rows += 2
	used := make([]bool, a.rows)
	for _, s := range segments {
		for i := range s.Len {
			used[s.Start+i] = true
		}
	}
	r := rand.New(rand.NewPCG(seed, 7))
	draw := func(heads int, scale float64) []bf16.Number {
		x := make([]bf16.Number, a.rows*heads*h.Dim)
		for i := range x {
			x[i] = bf16.Round(float32(r.NormFloat64() * scale))
			if !used[i/heads/h.Dim] {
				x[i] = nan
			}
		}
		return x
	}
	a.q, a.k, a.v, a.dOut = draw(h.Q, scale), draw(h.KV, scale), draw(h.KV, 1), draw(h.Q, 1)
	if h.Dim > 7 {
		a.cancel(r, used)
	}
	return a
}

// cancel changes dimensions of every operand so that large terms of each chain cancel. Otherwise rounding to bfloat16
// would hide in which steps a chain takes its terms.
func (a *attention) cancel(r *rand.Rand, used []bool) {
	large := func() bf16.Number { return bf16.Round(float32(math.Ldexp(1, 10+r.IntN(8)))) }
	const sign = bf16.Number(1 << 15)
	dim := a.h.Dim
	for row := range a.rows {
		if !used[row] {
			continue
		}
		pair := row%2 == 1 && used[row-1] // equal keys and values, so their weights are equal
		for c := range a.h.KV {
			k, v := a.row(a.k, a.h.KV, row, c), a.row(a.v, a.h.KV, row, c)
			k[0] = bf16.Round(float32(r.NormFloat64() * 64))
			k[dim/2] = k[0] ^ sign
			k[dim-1], v[dim-2], k[dim-3], v[dim-4] = large(), large(), 0, 0
			if pair {
				copy(k, a.row(a.k, a.h.KV, row-1, c))
				copy(v, a.row(a.v, a.h.KV, row-1, c))
				k[dim-1] ^= sign
				v[dim-2] ^= sign
			}
		}
		for head := range a.h.Q {
			q, dOut := a.row(a.q, a.h.Q, row, head), a.row(a.dOut, a.h.Q, row, head)
			q[0], q[dim/2] = 0x4280, 0x4280 // 64
			q[dim-1], dOut[dim-2], q[dim-3], dOut[dim-4] = 0, 0, large(), large()
			if head%(a.h.Q/a.h.KV)%2 == 1 { // equal heads of a key and value
				copy(q, a.row(a.q, a.h.Q, row, head-1))
				copy(dOut, a.row(a.dOut, a.h.Q, row, head-1))
				q[dim-3] ^= sign
				dOut[dim-4] ^= sign
			}
		}
	}
}

// path returns the rows of a segment and its ancestors, root first.
func (a *attention) path(segment int) []int {
	var rows []int
	if p := a.segments[segment].Parent; p >= 0 {
		rows = a.path(int(p))
	}
	s := a.segments[segment]
	for i := range s.Len {
		rows = append(rows, int(s.Start+i))
	}
	return rows
}

func (a *attention) row(x []bf16.Number, heads, row, head int) []bf16.Number {
	at := (row*heads + head) * a.h.Dim
	return x[at : at+a.h.Dim]
}

// owned reports whether a segment has a row.
func (a *attention) owned(row int) bool {
	for _, s := range a.segments {
		if row >= int(s.Start) && row < int(s.Start+s.Len) {
			return true
		}
	}
	return false
}

// empty returns a result before the kernels write it.
func (a *attention) empty() attentionResult {
	fill := func(n int) []bf16.Number {
		x := make([]bf16.Number, n)
		for i := range x {
			x[i] = 0x4242
		}
		return x
	}
	stats := make([]float32, 2*a.rows*a.h.Q)
	return attentionResult{fill(len(a.q)), fill(len(a.q)), fill(len(a.k)), fill(len(a.k)), stats}
}

// numbersOf returns numbers in memory of a device of this host.
func numbersOf(t *testing.T, d npu.Device, x []bf16.Number) npu.Buffer {
	t.Helper()
	b, err := d.Alloc(npu.BFloat16, len(x), npu.Activations)
	require.NoError(t, err)
	t.Cleanup(func() { d.Free(b) })
	copy(b.BFloat16s(), x)
	return b
}

// newBatch returns a batch with room for values until the test ends.
func newBatch(t *testing.T, d npu.Device, values int) *npu.Batch {
	t.Helper()
	b := npu.NewBatch(d)
	require.NoError(t, b.Begin(values))
	t.Cleanup(b.Free)
	return b
}

// run runs both kernels. dq takes the memory of dOut.
func (a *attention) run(t *testing.T, d npu.Device) attentionResult {
	t.Helper()
	r := a.empty()
	batch := newBatch(t, d, npu.SegmentValues(a.segments))
	forest := batch.Segments(a.segments)
	batch.Upload()
	q, k, v, dOut := numbersOf(t, d, a.q), numbersOf(t, d, a.k), numbersOf(t, d, a.v), numbersOf(t, d, a.dOut)
	out, dk, dv := numbersOf(t, d, r.out), numbersOf(t, d, r.dk), numbersOf(t, d, r.dv)
	stats := values(t, d, npu.Float32, r.stats)
	d.Attention(out, stats, q, k, v, forest, a.h)
	d.AttentionBackward(dOut, dk, dv, dOut, out, stats, q, k, v, forest, a.h)
	require.NoError(t, d.Sync())
	copy(r.out, out.BFloat16s())
	copy(r.dk, dk.BFloat16s())
	copy(r.dv, dv.BFloat16s())
	copy(r.stats, stats.Float32s())
	for row := range a.rows {
		if width := a.h.Q * a.h.Dim; a.owned(row) {
			copy(r.dq[row*width:(row+1)*width], dOut.BFloat16s()[row*width:])
		}
	}
	return r
}

// cached computes out through a cache, chunk positions of a sequence at a time. Each segment is a sequence of its own.
// Slots that no row was written to hold NaN.
func (a *attention) cached(t *testing.T, d npu.Device, chunk int) []bf16.Number {
	t.Helper()
	out := a.empty().out
	var paths [][]int
	longest := 0
	for s := range a.segments {
		paths = append(paths, a.path(s))
		longest = max(longest, len(paths[s]))
	}
	stride := longest/npu.PageSize + 2
	order := rand.New(rand.NewPCG(1, 2)).Perm(stride * len(paths))
	stale := make([]bf16.Number, len(order)*npu.PageSize*a.h.KV*a.h.Dim)
	for i := range stale {
		stale[i] = nan
	}
	cacheK, cacheV := numbersOf(t, d, stale), numbersOf(t, d, stale)
	for first := 0; first < longest; first += chunk {
		var q, k, v []bf16.Number
		var rows, lens, slots, from []int32
		for s, path := range paths {
			for i := first; i < min(len(path), first+chunk); i++ {
				wq, wk := a.h.Q*a.h.Dim, a.h.KV*a.h.Dim
				q = append(q, a.q[path[i]*wq:(path[i]+1)*wq]...)
				k, v = append(k, a.k[path[i]*wk:(path[i]+1)*wk]...), append(v, a.v[path[i]*wk:(path[i]+1)*wk]...)
				rows, lens, from = append(rows, int32(s)), append(lens, int32(i+1)), append(from, int32(path[i]))
				slots = append(slots, int32(order[s*stride+i/npu.PageSize]*npu.PageSize+i%npu.PageSize))
			}
		}
		var pages []int32
		for _, page := range order {
			pages = append(pages, int32(page))
		}
		batch := newBatch(t, d, len(pages)+len(slots)+3*len(rows)+1)
		slotList, tables := batch.Ints(slots), batch.Tables(batch.Ints(pages), stride, rows, lens)
		batch.Upload()
		o := numbersOf(t, d, make([]bf16.Number, len(q)))
		d.CacheWrite(cacheK, cacheV, numbersOf(t, d, k), numbersOf(t, d, v), slotList, a.h)
		d.AttentionCached(o, numbersOf(t, d, q), cacheK, cacheV, &tables, a.h)
		require.NoError(t, d.Sync())
		width := a.h.Q * a.h.Dim
		for i, row := range from {
			copy(out[int(row)*width:(int(row)+1)*width], o.BFloat16s()[i*width:])
		}
	}
	return out
}

// randomForest draws trees whose segments are in any order in memory, with rows of no segment between them.
func randomForest(r *rand.Rand, n, longest int) []npu.Segment {
	segments := make([]npu.Segment, n)
	start := int32(0)
	for _, i := range r.Perm(n) {
		start += int32(r.IntN(3))
		segments[i] = npu.Segment{Start: start, Len: int32(r.IntN(longest + 1)), Parent: int32(r.IntN(i+1)) - 1}
		if r.IntN(3) > 0 && i > 0 { // deep trees
			segments[i].Parent = int32(i - 1)
		}
		start += segments[i].Len
	}
	return segments
}

// attentions returns forests whose boundaries straddle tiles, with groups, windows and dimensions of every kind.
func attentions() []*attention {
	r := rand.New(rand.NewPCG(3, 4))
	heads := []npu.Heads{
		{Q: 1, KV: 1, Dim: 8}, {Q: 2, KV: 1, Dim: 16}, {Q: 3, KV: 1, Dim: 33}, {Q: 4, KV: 2, Dim: 5},
		{Q: 7, KV: 1, Dim: 64},
		{Q: 2, KV: 2, Dim: 59}, {Q: 2, KV: 1, Dim: 130}, {Q: 1, KV: 1, Dim: 128, Window: 1},
		{Q: 2, KV: 1, Dim: 32, Window: 9},
		{Q: 3, KV: 3, Dim: 16, Window: 70}, {Q: 70, KV: 1, Dim: 8},
	}
	var all []*attention
	for i, h := range heads {
		for j := range 3 {
			segments := randomForest(r, 1+r.IntN(9), []int{7, 40, 150 / h.Q}[j])
			all = append(all, newAttention("forest", segments, h, []float64{1, 4, 0.2}[(i+j)%3], r.Uint64()))
		}
	}
	// Values and gradients that mma.h takes one by one, and rows without a gradient.
	for _, scale := range []float32{0x1p70, 0x1p-55} {
		h := npu.Heads{Q: 4, KV: 2, Dim: 40}
		a := newAttention(fmt.Sprint("values of ", scale), randomForest(r, 4, 40), h, 1, 5)
		for i, v := range a.v {
			a.v[i] = bf16.Round(v.Float() * scale)
		}
		for i := range a.dOut {
			if i/400%2 == 0 && a.dOut[i] != nan {
				a.dOut[i] = 0
			}
		}
		all = append(all, a)
	}
	long := []npu.Segment{
		{Start: 0, Len: 1045, Parent: -1}, {Start: 1045, Len: 30, Parent: 0}, {Start: 1080, Len: 20, Parent: 1},
	}
	return append(all, newAttention("long", long, npu.Heads{Q: 1, KV: 1, Dim: 8}, 1, 1),
		newAttention("long", long, npu.Heads{Q: 2, KV: 1, Dim: 4, Window: 600}, 2, 2))
}

// The C kernels have the bits of the Go kernels, and a cache gives the bits of training.
func TestSameAttentionBF16(t *testing.T) {
	t.Parallel()
	if soak.Race {
		t.Skip("the race detector does not see C")
	}
	for _, a := range attentions() {
		want := a.run(t, open(t, in(npu.BF16, cpu.OpenPureGo), 2))
		t.Run(a.name, func(t *testing.T) {
			everyBF16(t, func(t *testing.T, d npu.Device) {
				got := a.run(t, d)
				for i := range want.stats {
					require.Equal(t, math.Float32bits(want.stats[i]), math.Float32bits(got.stats[i]), "statistic %d", i)
				}
				sameNumbers(t, "out", want.out, got.out)
				sameNumbers(t, "dq", want.dq, got.dq)
				sameNumbers(t, "dk", want.dk, got.dk)
				sameNumbers(t, "dv", want.dv, got.dv)
				for _, chunk := range []int{1, 7, 64} {
					if chunk == 1 && a.rows > 1000 {
						chunk = 300
					}
					sameNumbers(t, fmt.Sprint("chunks of ", chunk), want.out, a.cached(t, d, chunk))
				}
			})
		})
	}
}

func sameNumbers(t *testing.T, name string, want, got []bf16.Number) {
	t.Helper()
	for i := range want {
		require.Equal(t, want[i], got[i], "%s[%d]: %g, expected %g", name, i, got[i].Float(), want[i].Float())
	}
}
