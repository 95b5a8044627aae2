package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
)

// This file follows the doc comments of npu.AttentionKernels step by step in BF16, a row and a query head at a time.

// fma rounds to float64 and then to float32, which differs from one rounding only near a tie.
func fma(a, b, c float32) float32 { return float32(math.FMA(float64(a), float64(b), float64(c))) }

// power returns 2^x by the polynomial of degree 3.
func power(x float32) float32 {
	if x < -60 {
		return 0
	}
	n := float32(math.RoundToEven(float64(x)))
	r := x - n
	p := fma(fma(fma(0x1.c3f760p-5, r, 0x1.f0de1ap-3), r, 0x1.62f31ap-1), r, 0x1.fff692p-1)
	return float32(math.Ldexp(float64(p), int(n)))
}

// exact returns 2^n for a whole n.
func exact(n float32) float32 {
	if n < -60 {
		return 0
	}
	return float32(math.Ldexp(1, int(n)))
}

// fold adds terms in sixteen partial sums.
func fold(terms []float32, add func(sum, term float32) float32) float32 {
	var p [16]float32
	for i, x := range terms {
		p[i%16] = add(p[i%16], x)
	}
	for s := 8; s > 0; s /= 2 {
		for i := range s {
			p[i] += p[i+s]
		}
	}
	return p[0]
}

// attentionCase is an attention of a forest.
type attentionCase struct {
	h        npu.Heads
	segments []npu.Segment
	rows     int

	q, k, v, dOut []float32
}

// newAttentionCase returns random operands. Chains of the last two dimensions have large terms that cancel, so that the
// steps of a chain matter to the rounded sums: in the last one, large keys and values, which no score sees; in the one
// before it, large queries and gradients of pairs of heads.
func newAttentionCase(r *rand.Rand, h npu.Heads, segments ...npu.Segment) *attentionCase {
	c := &attentionCase{h: h, segments: segments}
	for _, s := range segments {
		c.rows = max(c.rows, int(s.Start+s.Len))
	}
	c.q, c.dOut = numbers(r, c.rows*h.Q*h.Dim), numbers(r, c.rows*h.Q*h.Dim)
	c.k, c.v = numbers(r, c.rows*h.KV*h.Dim), numbers(r, c.rows*h.KV*h.Dim)
	large := func() float32 { return float32(math.Ldexp(1, 6+r.IntN(16))) }
	for row := range c.rows {
		for head := range h.Q {
			q, do := c.query(c.q, row, head), c.query(c.dOut, row, head)
			for e := range q {
				q[e] *= 4 // so that the weights of keys differ
			}
			q[h.Dim-1], do[h.Dim-1] = 0, 0
			if head%2 == 1 && r.IntN(2) == 0 {
				pair, pairDo := c.query(c.q, row, head-1), c.query(c.dOut, row, head-1)
				copy(q, pair)
				copy(do, pairDo)
				q[h.Dim-2], do[h.Dim-2] = large(), large()
				pair[h.Dim-2], pairDo[h.Dim-2] = -q[h.Dim-2], -do[h.Dim-2]
			}
		}
		for head := 0; head < h.Q; head += h.Q / h.KV {
			k, v := c.key(c.k, row, head), c.key(c.v, row, head)
			const apart = 5 // rows of a pair
			if row%(2*apart) >= apart && r.IntN(2) == 0 {
				pair, pairV := c.key(c.k, row-apart, head), c.key(c.v, row-apart, head)
				copy(k, pair)
				copy(v, pairV)
				k[h.Dim-1], v[h.Dim-1] = large(), large()
				pair[h.Dim-1], pairV[h.Dim-1] = -k[h.Dim-1], -v[h.Dim-1]
			}
			k[h.Dim-2], v[h.Dim-2] = 0, 0
		}
	}
	return c
}

// path returns the rows of a segment and its ancestors by position.
func (c *attentionCase) path(seg int) []int {
	var rows []int
	s := c.segments[seg]
	if s.Parent >= 0 {
		rows = c.path(int(s.Parent))
	}
	for i := range s.Len {
		rows = append(rows, int(s.Start+i))
	}
	return rows
}

// sees reports whether a row at a position sees a key.
func (c *attentionCase) sees(position, key int) bool {
	return key <= position && (c.h.Window == 0 || key > position-c.h.Window)
}

func (c *attentionCase) query(x []float32, row, head int) []float32 {
	return x[(row*c.h.Q+head)*c.h.Dim:][:c.h.Dim]
}

func (c *attentionCase) key(x []float32, row, head int) []float32 {
	return x[(row*c.h.KV+head/(c.h.Q/c.h.KV))*c.h.Dim:][:c.h.Dim]
}

func (c *attentionCase) scale() float32 { return float32(math.Log2E / math.Sqrt(float64(c.h.Dim))) }

// forward computes the output and the statistics.
func (c *attentionCase) forward() (out, stats []float32) {
	out, stats = make([]float32, len(c.q)), make([]float32, 2*c.rows*c.h.Q)
	for seg := range c.segments {
		path := c.path(seg)
		for position := len(path) - int(c.segments[seg].Len); position < len(path); position++ {
			for head := range c.h.Q {
				c.forwardRow(out, stats, path, position, head)
			}
		}
	}
	return out, stats
}

func (c *attentionCase) forwardRow(out, stats []float32, path []int, position, head int) {
	const none = -1 << 20
	bigM, bigL, bigO := float32(none), float32(0), make([]float32, c.h.Dim)
	q := c.query(c.q, path[position], head)
	for split := 0; split <= position; split += npu.KeySplit {
		m, l, o := float32(none), float32(0), make([]float32, c.h.Dim)
		for tile := split; tile < split+npu.KeySplit; tile += npu.KeyTile {
			var s, p [npu.KeyTile]float32
			top := float32(math.Inf(-1))
			for j := range s {
				if tile+j < len(path) && c.sees(position, tile+j) {
					s[j] = continueChain(0, q, c.key(c.k, path[tile+j], head))
					top = max(top, s[j])
				}
			}
			if math.IsInf(float64(top), -1) {
				continue
			}
			next := max(m, float32(math.RoundToEven(float64(min(max(top*c.scale(), -1<<19), 1<<19))))+1)
			a := exact(m - next)
			for j := range p {
				if tile+j < len(path) && c.sees(position, tile+j) {
					p[j] = rounded(power(fma(s[j], c.scale(), -next)))[0]
				}
			}
			l = fma(l, a, fold(p[:], func(sum, x float32) float32 { return sum + x }))
			for e := range o {
				var v [npu.KeyTile]float32
				for j := range v {
					if tile+j < len(path) && c.sees(position, tile+j) {
						v[j] = c.key(c.v, path[tile+j], head)[e]
					}
				}
				o[e] = continueChain(o[e]*a, p[:], v[:])
			}
			m = next
		}
		n := max(bigM, m)
		x, y := exact(bigM-n), exact(m-n)
		bigM, bigL = n, fma(l, y, bigL*x)
		for e := range o {
			bigO[e] = fma(o[e], y, bigO[e]*x)
		}
	}
	to := c.query(out, path[position], head)
	for e := range to {
		to[e] = rounded(bigO[e]*(1/bigL) + 0)[0]
	}
	at := 2 * (path[position]*c.h.Q + head)
	stats[at], stats[at+1] = bigM, 1/bigL
}

// backward computes the gradients, given the forward pass.
func (c *attentionCase) backward(out, stats []float32) (dq, dk, dv []float32) {
	dq, dk, dv = make([]float32, len(c.q)), make([]float32, len(c.k)), make([]float32, len(c.v))
	for seg, s := range c.segments {
		path := c.path(seg)
		for first := 0; first < int(s.Len); first += npu.PartRows {
			rows := path[len(path)-int(s.Len)+first:]
			rows = rows[:min(npu.PartRows, len(rows))]
			c.backwardPart(dq, dk, dv, out, stats, seg, path[:len(path)-int(s.Len)+first+len(rows)], len(rows))
		}
	}
	for i := range dk {
		dk[i] = rounded(dk[i] * c.root())[0]
		dv[i] = rounded(dv[i])[0]
	}
	return dq, dk, dv
}

func (c *attentionCase) root() float32 { return float32(1 / math.Sqrt(float64(c.h.Dim))) }

// backwardPart writes dq of a part, the last n rows of path, and adds its sums to dk and dv.
func (c *attentionCase) backwardPart(dq, dk, dv, out, stats []float32, seg int, path []int, n int) {
	group, before := c.h.Q/c.h.KV, len(path)-n
	p, ds := map[[2]int][]float32{}, map[[2]int][]float32{} // of the keys, by position and head of the query
	for position := before; position < len(path); position++ {
		for head := range c.h.Q {
			row := path[position]
			q, do, o := c.query(c.q, row, head), c.query(c.dOut, row, head), c.query(out, row, head)
			i := -1
			dot := fold(do, func(sum, x float32) float32 { i++; return fma(x, o[i], sum) })
			m, il := stats[2*(row*c.h.Q+head)], stats[2*(row*c.h.Q+head)+1]
			ps, dss := make([]float32, len(path)), make([]float32, len(path))
			for j, key := range path {
				if c.sees(position, j) {
					x := power(fma(continueChain(0, q, c.key(c.k, key, head)), c.scale(), -m)) * il
					ps[j] = rounded(x)[0]
					dss[j] = rounded(x * (continueChain(0, do, c.key(c.v, key, head)) - dot))[0]
				}
			}
			p[[2]int{position, head}], ds[[2]int{position, head}] = ps, dss
			for e := range c.h.Dim {
				c.query(dq, row, head)[e] = rounded(c.chainOfKeys(dss, seg, path, head, e) * c.root())[0]
			}
		}
	}
	for j, key := range path {
		for kv := range c.h.KV {
			for e := range c.h.Dim {
				var a, b, x, y []float32 // terms of dk and dv
				for position := before; position < len(path); position++ {
					for head := kv * group; head < (kv+1)*group; head++ {
						a = append(a, ds[[2]int{position, head}][j])
						b = append(b, c.query(c.q, path[position], head)[e])
						x = append(x, p[[2]int{position, head}][j])
						y = append(y, c.query(c.dOut, path[position], head)[e])
					}
				}
				c.key(dk, key, kv*group)[e] += continueChain(0, a, b)
				c.key(dv, key, kv*group)[e] += continueChain(0, x, y)
			}
		}
	}
}

// chainOfKeys is the chain of dS·k over the keys of a path, segment by segment.
func (c *attentionCase) chainOfKeys(ds []float32, seg int, path []int, head, e int) float32 {
	var lens []int // of the segments on the path, the last first
	for ; seg >= 0; seg = int(c.segments[seg].Parent) {
		lens = append(lens, int(c.segments[seg].Len))
	}
	sum, first := float32(0), 0
	for i := len(lens) - 1; i >= 0; i-- {
		var a, b []float32
		for j := first; j < min(len(path), first+lens[i]); j++ {
			a = append(a, ds[j])
			b = append(b, c.key(c.k, path[j], head)[e])
		}
		sum = continueChain(sum, a, b)
		first += lens[i]
	}
	return sum
}

// output runs the forward pass on a device.
func (c *attentionCase) output(m memory) []float32 {
	b := m.batch(npu.SegmentValues(c.segments))
	defer b.Free()
	forest := b.Segments(c.segments)
	b.Upload()
	out := m.values(make([]float32, len(c.q)))
	m.Attention(out, npu.Buffer{}, m.values(c.q), m.values(c.k), m.values(c.v), forest, c.h)
	return m.get(out)
}

// run runs both passes on a device. dq takes the memory of dOut.
func (c *attentionCase) run(m memory) (out, stats, dq, dk, dv []float32) {
	b := m.batch(npu.SegmentValues(c.segments))
	forest := b.Segments(c.segments)
	b.Upload()
	q, k, v, o := m.values(c.q), m.values(c.k), m.values(c.v), m.values(make([]float32, len(c.q)))
	st := m.floats(make([]float32, 2*c.rows*c.h.Q))
	m.Attention(o, st, q, k, v, forest, c.h)
	do, gk, gv := m.values(c.dOut), m.values(make([]float32, len(c.k))), m.values(make([]float32, len(c.v)))
	m.AttentionBackward(do, gk, gv, do, o, st, q, k, v, forest, c.h)
	return m.get(o), m.get(st), m.get(do), m.get(gk), m.get(gv)
}

// shapes are heads in groups of 1, 2, 3 and 7, some with a window.
func shapes() []npu.Heads {
	return []npu.Heads{
		{Q: 2, KV: 2, Dim: 24}, {Q: 4, KV: 2, Dim: 16, Window: 50}, {Q: 3, KV: 1, Dim: 6, Window: 1},
		{Q: 7, KV: 1, Dim: 16}, {Q: 6, KV: 2, Dim: 4, Window: 64}, {Q: 1, KV: 1, Dim: 8},
	}
}

// Both passes follow the contract.
func TestBF16Attention(t *testing.T) {
	t.Parallel()
	m := goDevice(t, npu.BF16)
	forests := map[string][]npu.Segment{
		"one":  {{Start: 0, Len: 1, Parent: -1}},
		"tile": {{Start: 2, Len: 65, Parent: -1}},
		"tree": {{Start: 0, Len: 19, Parent: -1}, {Start: 25, Len: 50, Parent: 0}, {Start: 80, Len: 3, Parent: 0},
			{Start: 83, Len: 7, Parent: 1}},
		"forest": {{Start: 40, Len: 33, Parent: -1}, {Start: 0, Len: 16, Parent: -1}, {Start: 16, Len: 20, Parent: 1}},
	}
	for name, segments := range forests {
		for i, h := range shapes() {
			c := newAttentionCase(rand.New(rand.NewPCG(uint64(i), 1)), h, segments...)
			c.compare(t, m, fmt.Sprintf("%s %v", name, h))
		}
	}
}

// Long sequences have several splits of keys and parts of rows.
func TestBF16AttentionLong(t *testing.T) {
	t.Parallel()
	m := goDevice(t, npu.BF16)
	for _, h := range []npu.Heads{{Q: 1, KV: 1, Dim: 3}, {Q: 3, KV: 1, Dim: 3, Window: 600}} {
		c := newAttentionCase(rand.New(rand.NewPCG(4, 1)), h,
			npu.Segment{Start: 0, Len: 1090, Parent: -1}, npu.Segment{Start: 1090, Len: 40, Parent: 0})
		c.compare(t, m, fmt.Sprint(h))
	}
}

func (c *attentionCase) compare(t *testing.T, m memory, name string) {
	t.Helper()
	used := make([]bool, c.rows) // rows of segments
	for _, s := range c.segments {
		for i := range s.Len {
			used[s.Start+i] = true
		}
	}
	out, stats := c.forward()
	dq, dk, dv := c.backward(out, stats)
	gotOut, gotStats, gotDq, gotDk, gotDv := c.run(m)
	for _, x := range []struct {
		name      string
		want, got []float32
	}{{"out", out, gotOut}, {"stats", stats, gotStats}, {"dq", dq, gotDq}, {"dk", dk, gotDk}, {"dv", dv, gotDv}} {
		cols := len(x.want) / c.rows
		for row := range used {
			if used[row] {
				sameBits(t, name+" "+x.name, x.want[row*cols:(row+1)*cols], x.got[row*cols:(row+1)*cols])
			}
		}
	}
}

// A row has equal bits in a pass over a tree, in one over its path alone, and in prefills of any chunks.
func TestBF16AttentionCached(t *testing.T) {
	t.Parallel()
	m := goDevice(t, npu.BF16)
	hs := append(shapes(), npu.Heads{Q: 2, KV: 1, Dim: 8, Window: 513})
	chunks := []int{1, 64, 7, 513}
	prompts := []int32{1, 15, 16, 17, 61, 62, 63, 64, 65, 127, 128, 447, 448, 509, 510, 511, 512, 513, 575}
	for i, prompt := range prompts {
		for j := range 2 {
			h, chunk := hs[(i+3*j)%len(hs)], chunks[(i+j)%len(chunks)]
			if chunk == 1 && prompt > 200 {
				chunk = 33
			}
			name := fmt.Sprintf("prompt of %d, %v, chunks of %d", prompt, h, chunk)
			c := newAttentionCase(rand.New(rand.NewPCG(uint64(i), uint64(j))), h,
				npu.Segment{Start: 0, Len: prompt, Parent: -1},
				npu.Segment{Start: prompt, Len: 3, Parent: 0}, npu.Segment{Start: prompt + 3, Len: 66, Parent: 0})
			out := c.output(m)
			for seg := range c.segments {
				var q, k, v, want []float32
				for _, row := range c.path(seg) {
					q = append(q, c.q[row*h.Q*h.Dim:(row+1)*h.Q*h.Dim]...)
					k = append(k, c.k[row*h.KV*h.Dim:(row+1)*h.KV*h.Dim]...)
					v = append(v, c.v[row*h.KV*h.Dim:(row+1)*h.KV*h.Dim]...)
					want = append(want, out[row*h.Q*h.Dim:(row+1)*h.Q*h.Dim]...)
				}
				n := len(c.path(seg))
				alone := &attentionCase{h: h, rows: n, q: q, k: k, v: v,
					segments: []npu.Segment{{Len: int32(n), Parent: -1}}}
				if seg > 0 {
					sameBits(t, name+", alone", want, alone.output(m))
				}
				sameBits(t, name, want, alone.prefill(m, chunk))
			}
		}
	}
}

// prefill computes a sequence through a cache of NaN, whose pages descend, a chunk at a time.
func (c *attentionCase) prefill(m memory, chunk int) []float32 {
	h, pages := c.h, (c.rows+npu.PageSize-1)/npu.PageSize
	stale := make([]float32, pages*npu.PageSize*h.KV*h.Dim)
	table := make([]int32, pages)
	for i := range stale {
		stale[i] = float32(math.NaN())
	}
	for i := range table {
		table[i] = int32(pages - 1 - i)
	}
	cacheK, cacheV := m.values(stale), m.values(stale)
	q, k, v, out := m.values(c.q), m.values(c.k), m.values(c.v), m.values(make([]float32, len(c.q)))
	defer func() {
		for _, b := range []npu.Buffer{cacheK, cacheV, q, k, v, out} {
			m.Free(b)
		}
	}()
	b := m.batch(5*chunk + pages + 1)
	defer b.Free()
	for first := 0; first < c.rows; first += chunk {
		end := min(c.rows, first+chunk)
		var slots, lens []int32
		for p := first; p < end; p++ {
			slots = append(slots, table[p/npu.PageSize]*npu.PageSize+int32(p%npu.PageSize))
			lens = append(lens, int32(p+1))
		}
		require.NoError(m.t, b.Begin(5*chunk+pages+1))
		list := b.Ints(table)
		to, tables := b.Ints(slots), b.Tables(list, pages, make([]int32, end-first), lens)
		b.Upload()
		wide, narrow := h.Q*h.Dim, h.KV*h.Dim
		m.CacheWrite(cacheK, cacheV, k.Slice(first*narrow, end*narrow), v.Slice(first*narrow, end*narrow), to, h)
		m.AttentionCached(out.Slice(first*wide, end*wide), q.Slice(first*wide, end*wide), cacheK, cacheV, &tables, h)
	}
	return m.get(out)
}
