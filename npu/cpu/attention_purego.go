package cpu

import (
	"math"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// In this file, a row is a token, h the shape of the heads and c a key-value head. Each
// key-value head has a group of query heads. visible are the rows on a query's path, in ascending
// position. qr and or are the query and the output of one row and query head.

// Attention implements npu.Device.
func (d *pureGo) Attention(out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.OptionalLen("attention: stats", stats, check.StatsLen(q, h))
	o, st, qs, ks, vs := out.Float32s(), stats.Float32s(), q.Float32s(), k.Float32s(), v.Float32s()
	segments := segmentList(forest)
	group := h.Q / h.KV
	d.parallel(len(segments)*h.KV, func(task int) {
		seg, c := task/h.KV, task%h.KV
		visible := ancestors(segments, seg)
		a := newAttend(h)
		for i := range segments[seg].Len {
			row := segments[seg].Start + i
			visible = append(visible, row)
			for head := c * group; head < (c+1)*group; head++ {
				query := int(row)*h.Q + head
				lo, hi := query*h.Dim, (query+1)*h.Dim
				qr := qs[lo:hi]
				m, il := a.row(o[lo:hi], len(visible),
					func(s []float32, first int) { scores(s, qr, ks, visible[first:], c, h) },
					func(j int) []float32 { return rowOf(vs, visible[j], c, h) })
				if st != nil {
					st[2*query], st[2*query+1] = m, il
				}
			}
		}
	})
}

// attend computes the recurrence of npu.AttentionKernels for one row and query head at a time.
type attend struct {
	scale  float32 // of scores, which become exponents of 2
	window int
	s      [npu.KeyTile]float32 // scores of a tile, then its weights
	o      []float32            // weighted values of a split
}

func newAttend(h npu.Heads) *attend {
	return &attend{scale: scoreScale(h.Dim), window: windowOf(h), o: make([]float32, h.Dim)}
}

// row writes the attention of the row at position n-1 to out. It returns the row's maximum, a whole number, and
// the inverse of its sum. scores writes the products of the query and the keys from position first on; value returns
// a position's value.
func (a *attend) row(out []float32, n int, scores func(s []float32, first int), value func(j int) []float32) (
	m, il float32,
) {
	m, l := float32(noMaximum), float32(0)
	clear(out)
	seen := max(0, n-a.window) // the first position that the row sees
	for split := seen / npu.KeySplit * npu.KeySplit; split < n; split += npu.KeySplit {
		sm, sl := a.split(split, min(n, split+npu.KeySplit), seen, scores, value)
		top := max(m, sm)
		x, y := pow2(m-top, exp2Min), pow2(sm-top, exp2Min)
		l = fma32(sl, y, float32(l*x))
		for e := range out {
			out[e] = fma32(a.o[e], y, float32(out[e]*x))
		}
		m = top
	}
	il = 1 / l
	for e := range out {
		out[e] = float32(out[e]*il) + 0
	}
	return m, il
}

// split computes a.o, the maximum and the sum of one split, positions first to end, of which the row sees those
// from seen on.
func (a *attend) split(first, end, seen int, scores func(s []float32, first int), value func(j int) []float32) (
	m, l float32,
) {
	m = noMaximum
	clear(a.o)
	for ; first < end; first += npu.KeyTile {
		s := a.s[:min(npu.KeyTile, end-first)]
		hidden := min(max(0, seen-first), len(s))
		if hidden == len(s) {
			continue
		}
		scores(s, first)
		top := float32(math.Inf(-1))
		for _, x := range s[hidden:] {
			if x > top {
				top = x
			}
		}
		was := m
		m = max(m, float32(math.RoundToEven(float64(max(-clampMaximum, min(clampMaximum, float32(top*a.scale))))))+1)
		scale := pow2(was-m, exp2Min)
		var p [foldLanes]float32
		for j, x := range s {
			s[j] = exp2of(fma32(x, a.scale, -m))
			if j < hidden {
				s[j] = 0
			}
			p[j%foldLanes] += s[j]
		}
		l = fma32(l, scale, foldPartials(&p))
		for e := range a.o {
			a.o[e] = float32(a.o[e] * scale)
		}
		for j := hidden; j < len(s); j++ {
			axpy(a.o, value(first+j), s[j])
		}
	}
	return m, l
}

const (
	noMaximum    = -1 << 20 // maximum of a row before its first key
	clampMaximum = 1 << 19  // largest magnitude of a scaled score that maxima count
)

// AttentionBackward implements npu.Device. For each row and query head, with keys in ascending
// position:
//
//	D  = fold of dOut·out over Dim
//	p  = 2^(s-m)·il
//	dP = chain of dOut·v over Dim
//	dS = p·(dP-D)
//	dq = (chain of dS·k over the keys)/sqrt(Dim)
//
// dk and dv of a key are sums over the parts of rows that attend to the key, see npu.AttentionKernels.
// All these rows are in the tree of one root, so one task computes them.
func (d *pureGo) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.Attention(dOut, dq, dk, dv, forest, h)
	d.check.Values("attention backward: dq", dq, q.Len())
	d.check.Len("attention backward: stats", stats, check.StatsLen(q, h))
	segments := segmentList(forest)
	b := pureGoBackward{
		dq: dq.Float32s(), dk: dk.Float32s(), dv: dv.Float32s(), dOut: dOut.Float32s(), out: out.Float32s(),
		stats: stats.Float32s(), q: q.Float32s(), k: k.Float32s(), v: v.Float32s(),
		segments: segments, h: h,
	}
	trees := treesOf(segments)
	d.parallel(len(trees)*h.KV, func(task int) { b.tree(trees[task/h.KV], task%h.KV) })
}

// pureGoBackward holds the operands of one backward pass.
type pureGoBackward struct {
	dq, dk, dv, dOut, out, stats, q, k, v []float32
	segments                              []npu.Segment
	h                                     npu.Heads
}

// tree runs the backward pass of key-value head c over a root and its descendants,
// given as ascending segment indices.
func (b *pureGoBackward) tree(tree []int, c int) {
	for _, seg := range tree {
		s := b.segments[seg]
		for row := s.Start; row < s.Start+s.Len; row++ {
			clear(rowOf(b.dk, row, c, b.h))
			clear(rowOf(b.dv, row, c, b.h))
		}
	}
	for _, seg := range tree {
		visible := ancestors(b.segments, seg)
		for first := int32(0); first < b.segments[seg].Len; first += npu.PartRows {
			visible = b.part(seg, first, c, visible)
		}
	}
	scale := inverseRoot(b.h.Dim)
	for _, seg := range tree {
		s := b.segments[seg]
		for row := s.Start; row < s.Start+s.Len; row++ {
			dk := rowOf(b.dk, row, c, b.h)
			for e := range dk {
				dk[e] = float32(dk[e] * scale)
			}
		}
	}
}

// part runs the backward pass of the part of seg that begins with its row first. visible are the rows
// before it on its path; part returns them with those of the part.
func (b *pureGoBackward) part(seg int, first int32, c int, visible []int32) []int32 {
	s, group, dim := b.segments[seg], b.h.Q/b.h.KV, b.h.Dim
	end := min(s.Len, first+npu.PartRows)
	keys := len(visible) + int(end-first)
	dk, dv := make([]float32, keys*dim), make([]float32, keys*dim) // the part's chains
	p, ds := make([]float32, keys), make([]float32, keys)
	for row := s.Start + first; row < s.Start+end; row++ {
		visible = append(visible, row)
		for head := c * group; head < (c+1)*group; head++ {
			b.query(int(row)*b.h.Q+head, c, visible, p, ds, dk, dv)
		}
	}
	for j, row := range visible {
		for e, to := 0, rowOf(b.dk, row, c, b.h); e < dim; e++ {
			to[e] += dk[j*dim+e]
		}
		for e, to := 0, rowOf(b.dv, row, c, b.h); e < dim; e++ {
			to[e] += dv[j*dim+e]
		}
	}
	return visible
}

// query runs the backward pass of query row·h.Q + head and continues the chains dk and dv [visible, Dim]. p and ds
// are scratch, one value for each row of visible.
func (b *pureGoBackward) query(query, c int, visible []int32, p, ds, dk, dv []float32) {
	dim := b.h.Dim
	lo, hi := query*dim, (query+1)*dim
	qr, do, or := b.q[lo:hi], b.dOut[lo:hi], b.out[lo:hi]
	m, il := b.stats[2*query], b.stats[2*query+1]
	var partial [foldLanes]float32
	for e := range dim {
		partial[e%foldLanes] = fma32(do[e], or[e], partial[e%foldLanes])
	}
	dot := foldPartials(&partial)
	seen := max(0, len(visible)-windowOf(b.h))
	visible = visible[seen:]
	p, ds = p[:len(visible)], ds[:len(visible)]
	scores(p, qr, b.k, visible, c, b.h)
	scores(ds, do, b.v, visible, c, b.h)
	scale := scoreScale(dim)
	for j, s := range p {
		p[j] = float32(exp2of(fma32(s, scale, -m)) * il)
		ds[j] = float32(p[j] * float32(ds[j]-dot))
		at := (seen + j) * dim
		axpy(dk[at:at+dim], qr, ds[j])
		axpy(dv[at:at+dim], do, p[j])
	}
	dq := b.dq[lo:hi] // may be do
	clear(dq)
	for j, row := range visible {
		axpy(dq, rowOf(b.k, row, c, b.h), ds[j])
	}
	root := inverseRoot(dim)
	for e := range dq {
		dq[e] = float32((dq[e] + 0) * root)
	}
}

// CacheWrite implements npu.Device. The layout of a page is [KV][Dim][PageSize] for keys and
// [KV][PageSize][Dim] for values.
func (d *pureGo) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	d.check.CacheWrite(cacheK, cacheV, k, v, slots, h)
	ck, cv, ks, vs := cacheK.Float32s(), cacheV.Float32s(), k.Float32s(), v.Float32s()
	for t, slot := range slots.Int32s() {
		page, offset := int(slot)/npu.PageSize, int(slot)%npu.PageSize
		for c := range h.KV {
			base := (page*h.KV + c) * npu.PageSize * h.Dim
			row := (t*h.KV + c) * h.Dim
			for e := range h.Dim {
				ck[base+e*npu.PageSize+offset] = ks[row+e]
			}
			copy(cv[base+offset*h.Dim:base+(offset+1)*h.Dim], vs[row:row+h.Dim])
		}
	}
}

// AttentionCached implements npu.Device.
func (d *pureGo) AttentionCached(out, q, cacheK, cacheV npu.Buffer, tables *npu.Tables, h npu.Heads) {
	d.check.AttentionCached(out, q, cacheK, cacheV, tables, h)
	o, qs, ck, cv := out.Float32s(), q.Float32s(), cacheK.Float32s(), cacheV.Float32s()
	table, rows, lens := tables.Pages.Int32s(), tables.Rows.Int32s(), tables.Lens.Int32s()
	group := h.Q / h.KV
	d.parallel(len(lens)*h.Q, func(task int) {
		t := task / h.Q
		c := task % h.Q / group
		n := int(lens[t])
		pages := table[int(rows[t])*tables.Stride:][:(n+npu.PageSize-1)/npu.PageSize]
		qr, or := qs[task*h.Dim:(task+1)*h.Dim], o[task*h.Dim:(task+1)*h.Dim]
		base := func(page int32) int { return (int(page)*h.KV + c) * npu.PageSize * h.Dim }
		newAttend(h).row(or, n,
			func(s []float32, first int) {
				var block [npu.PageSize]float32 // a page may have unused positions
				for j := 0; j < len(s); j += npu.PageSize {
					clear(block[:])
					from := base(pages[(first+j)/npu.PageSize])
					for e, x := range qr {
						axpy(block[:], ck[from+e*npu.PageSize:from+(e+1)*npu.PageSize], x)
					}
					copy(s[j:], block[:])
				}
			},
			func(j int) []float32 {
				from := base(pages[j/npu.PageSize]) + j%npu.PageSize*h.Dim
				return cv[from : from+h.Dim]
			})
	})
}

// rowOf returns the values of a row and key-value head in x [T, KV, Dim].
func rowOf(x []float32, row int32, c int, h npu.Heads) []float32 {
	lo := (int(row)*h.KV + c) * h.Dim
	return x[lo : lo+h.Dim]
}

// scores writes s[j] = chain of qr·key over Dim, where key is row visible[j] of ks. ks [T, KV, Dim] may also be
// values.
func scores(s, qr, ks []float32, visible []int32, c int, h npu.Heads) {
	key := func(j int) []float32 { return rowOf(ks, visible[j], c, h) }
	j := 0
	for ; j+4 <= len(s); j += 4 { // four chains at a time hide latency
		k0, k1, k2, k3 := key(j), key(j+1), key(j+2), key(j+3)
		var s0, s1, s2, s3 float32
		for e, x := range qr {
			s0, s1 = fma32(x, k0[e], s0), fma32(x, k1[e], s1)
			s2, s3 = fma32(x, k2[e], s2), fma32(x, k3[e], s3)
		}
		s[j], s[j+1], s[j+2], s[j+3] = s0, s1, s2, s3
	}
	for ; j < len(s); j++ {
		var sum float32
		for e, x := range key(j) {
			sum = fma32(qr[e], x, sum)
		}
		s[j] = sum
	}
}

// axpy computes y += a·x, one fused multiply-add per element.
func axpy(y, x []float32, a float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] = fma32(a, x[i], y[i])
	}
}

// segmentList returns the segments of a forest.
func segmentList(forest npu.Segments) []npu.Segment {
	list, words := make([]npu.Segment, forest.N), forest.Int32s()
	for i := range list {
		list[i] = npu.Segment{Start: words[4*i], Len: words[4*i+1], Parent: words[4*i+2]}
	}
	return list
}

// ancestors returns the rows of seg's ancestors, the root's first, with capacity for
// seg's own rows.
func ancestors(segments []npu.Segment, seg int) []int32 {
	var path []int // seg, its parent and so on to the root
	n := 0         // rows of path
	for s := seg; s >= 0; s = int(segments[s].Parent) {
		path = append(path, s)
		n += int(segments[s].Len)
	}
	rows := make([]int32, 0, n)
	for i := len(path) - 1; i > 0; i-- { // path[0] is seg
		s := segments[path[i]]
		for row := s.Start; row < s.Start+s.Len; row++ {
			rows = append(rows, row)
		}
	}
	return rows
}

// treesOf returns the indices of the segments of each tree, ascending. Trees are in the order of
// their roots.
func treesOf(segments []npu.Segment) [][]int {
	var trees [][]int
	tree := make([]int, len(segments)) // index in trees, by segment
	for s, seg := range segments {
		if seg.Parent < 0 {
			tree[s] = len(trees)
			trees = append(trees, nil)
		} else {
			tree[s] = tree[seg.Parent]
		}
		trees[tree[s]] = append(trees[tree[s]], s)
	}
	return trees
}

// scoreScale returns log2(e)/sqrt(dim).
func scoreScale(dim int) float32 { return float32(math.Log2E / math.Sqrt(float64(dim))) }

// inverseRoot returns 1/sqrt(dim).
func inverseRoot(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// windowOf returns the number of positions that a row sees.
func windowOf(h npu.Heads) int {
	if h.Window == 0 {
		return math.MaxInt
	}
	return h.Window
}
