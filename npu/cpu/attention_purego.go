package cpu

import (
	"math"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// In this file, a row is a token, h the shape of the heads and c a key-value head. Each
// key-value head has a group of query heads. visible are the rows that a query attends to, in
// ascending position. s are scores, p probabilities, m the maximum of a query's scores and il
// the inverse of the sum of their exponentials. qr, or and do are the query, the output and the
// gradient of the output of one row and query head.

// Attention implements npu.Device.
func (d *pureGo) Attention(out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.OptionalLen("attention: stats", stats, check.StatsLen(q, h))
	o, st, qs, ks, vs := out.Float32s(), stats.Float32s(), q.Float32s(), k.Float32s(), v.Float32s()
	scale, segments := attentionScale(h.Dim), segmentList(forest)
	group := h.Q / h.KV
	d.parallel(len(segments)*h.KV, func(task int) {
		seg, c := task/h.KV, task%h.KV
		visible := ancestors(segments, seg)
		var p []float32
		for i := range segments[seg].Len {
			row := segments[seg].Start + i
			visible = append(visible, row)
			p = grow(p, len(visible))
			for head := c * group; head < (c+1)*group; head++ {
				query := int(row)*h.Q + head
				lo, hi := query*h.Dim, (query+1)*h.Dim
				m := scores(p, qs[lo:hi], ks, visible, c, h, scale)
				il := softmaxInverseSum(p, m)
				or := o[lo:hi]
				weigh(or, p, vs, visible, c, h)
				for e := range or {
					or[e] *= il
				}
				if st != nil {
					st[2*query], st[2*query+1] = m, il
				}
			}
		}
	})
}

// AttentionBackward implements npu.Device. For each row and query head, with keys in ascending
// position:
//
//	D  = chain of dOut·out over Dim
//	p  = exp(s-m)·il
//	dP = chain of dOut·v over Dim
//	dS = (p·(dP-D))·scale
//	dq = chain of dS·k over the keys
//
// dk and dv of a key are chains of dS·q and p·dOut over the rows that attend to the key: by
// segment, then by row, then by query head, all ascending. All these rows are in the tree of one
// root, so one task computes them.
func (d *pureGo) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.Attention(dOut, dq, dk, dv, forest, h)
	d.check.Len("attention backward: dq", dq, q.Len())
	d.check.Len("attention backward: stats", stats, check.StatsLen(q, h))
	segments := segmentList(forest)
	b := pureGoBackward{
		dq: dq.Float32s(), dk: dk.Float32s(), dv: dv.Float32s(), dOut: dOut.Float32s(), out: out.Float32s(),
		stats: stats.Float32s(), q: q.Float32s(), k: k.Float32s(), v: v.Float32s(),
		segments: segments, h: h, scale: attentionScale(h.Dim),
	}
	trees := treesOf(segments)
	d.parallel(len(trees)*h.KV, func(task int) { b.tree(trees[task/h.KV], task%h.KV) })
}

// pureGoBackward holds the operands of one backward pass.
type pureGoBackward struct {
	dq, dk, dv, dOut, out, stats, q, k, v []float32
	segments                              []npu.Segment
	h                                     npu.Heads
	scale                                 float32
}

// tree runs the backward pass of key-value head c over a root and its descendants,
// given as ascending segment indices.
func (b *pureGoBackward) tree(tree []int, c int) {
	for _, seg := range tree {
		s := b.segments[seg]
		for row := s.Start; row < s.Start+s.Len; row++ {
			at := (int(row)*b.h.KV + c) * b.h.Dim
			clear(b.dk[at : at+b.h.Dim])
			clear(b.dv[at : at+b.h.Dim])
		}
	}
	group := b.h.Q / b.h.KV
	var p, dp []float32 // p and dP, later dS, of one query
	for _, seg := range tree {
		visible := ancestors(b.segments, seg)
		for i := range b.segments[seg].Len {
			row := b.segments[seg].Start + i
			visible = append(visible, row)
			p, dp = grow(p, len(visible)), grow(dp, len(visible))
			for head := c * group; head < (c+1)*group; head++ {
				b.query(int(row)*b.h.Q+head, c, visible, p, dp)
			}
		}
	}
}

// query runs the backward pass of query row·h.Q + head. p and dp are scratch, one value for each
// row of visible.
func (b *pureGoBackward) query(query, c int, visible []int32, p, dp []float32) {
	dim := b.h.Dim
	lo, hi := query*dim, (query+1)*dim
	qr, do, or := b.q[lo:hi], b.dOut[lo:hi], b.out[lo:hi]
	m, il := b.stats[2*query], b.stats[2*query+1]
	var dot float32
	for e := range dim {
		dot = fma32(do[e], or[e], dot)
	}
	scores(p, qr, b.k, visible, c, b.h, b.scale)
	scores(dp, do, b.v, visible, c, b.h, 1)
	for j, s := range p {
		p[j] = float32(exp32(s-m) * il)
		dp[j] = float32(float32(p[j]*float32(dp[j]-dot)) * b.scale)
	}
	for j, row := range visible {
		key := (int(row)*b.h.KV + c) * dim
		axpy(b.dk[key:key+dim], qr, dp[j])
		axpy(b.dv[key:key+dim], do, p[j])
	}
	weigh(b.dq[lo:hi], dp, b.k, visible, c, b.h)
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
	scale := attentionScale(h.Dim)
	group := h.Q / h.KV
	d.parallel(len(lens)*h.Q, func(task int) {
		t := task / h.Q
		c := task % h.Q / group
		n := int(lens[t])
		pages := table[int(rows[t])*tables.Stride:][:(n+npu.PageSize-1)/npu.PageSize]
		qr, or := qs[task*h.Dim:(task+1)*h.Dim], o[task*h.Dim:(task+1)*h.Dim]
		p := make([]float32, len(pages)*npu.PageSize) // scores of all positions in pages
		for i, page := range pages {
			base := (int(page)*h.KV + c) * npu.PageSize * h.Dim
			block := p[i*npu.PageSize : (i+1)*npu.PageSize]
			for e, x := range qr {
				axpy(block, ck[base+e*npu.PageSize:base+(e+1)*npu.PageSize], x)
			}
		}
		p = p[:n] // the last page may have unused positions
		m := float32(math.Inf(-1))
		for j, s := range p {
			p[j] = float32(s * scale)
			if p[j] > m {
				m = p[j]
			}
		}
		il := softmaxInverseSum(p, m)
		clear(or)
		for j, x := range p {
			base := ((int(pages[j/npu.PageSize])*h.KV+c)*npu.PageSize + j%npu.PageSize) * h.Dim
			axpy(or, cv[base:base+h.Dim], x)
		}
		for e := range or {
			or[e] *= il
		}
	})
}

// scores writes p[j] = (chain of qr·key over Dim)·scale, where key is row visible[j] of ks, and
// returns the maximum. It ignores NaN in the maximum. ks [T, KV, Dim] may also be values.
func scores(p, qr, ks []float32, visible []int32, c int, h npu.Heads, scale float32) float32 {
	m := float32(math.Inf(-1))
	key := func(j int) []float32 {
		lo := (int(visible[j])*h.KV + c) * h.Dim
		return ks[lo : lo+len(qr)]
	}
	j := 0
	for ; j+4 <= len(visible); j += 4 { // four chains at a time hide latency
		k0, k1, k2, k3 := key(j), key(j+1), key(j+2), key(j+3)
		var s0, s1, s2, s3 float32
		for e, x := range qr {
			s0, s1 = fma32(x, k0[e], s0), fma32(x, k1[e], s1)
			s2, s3 = fma32(x, k2[e], s2), fma32(x, k3[e], s3)
		}
		p[j], p[j+1], p[j+2], p[j+3] = s0, s1, s2, s3
	}
	for ; j < len(visible); j++ {
		var s float32
		for e, x := range key(j) {
			s = fma32(qr[e], x, s)
		}
		p[j] = s
	}
	for i, s := range p {
		p[i] = float32(s * scale)
		if p[i] > m {
			m = p[i]
		}
	}
	return m
}

// softmaxInverseSum replaces scores p by exp(score - m) and returns the inverse of their sum.
func softmaxInverseSum(p []float32, m float32) float32 {
	var l float32
	for j, s := range p {
		p[j] = exp32(s - m)
		l += p[j]
	}
	return 1 / l
}

// weigh sets dst to chains over j, from 0, of p[j]·value, where value is row visible[j] of vs.
// vs [T, KV, Dim] may also be keys.
func weigh(dst, p, vs []float32, visible []int32, c int, h npu.Heads) {
	clear(dst)
	for j, row := range visible {
		lo := (int(row)*h.KV + c) * h.Dim
		axpy(dst, vs[lo:lo+h.Dim], p[j])
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
		list[i] = npu.Segment{Start: words[3*i], Len: words[3*i+1], Parent: words[3*i+2]}
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

// attentionScale returns 1/sqrt(dim).
func attentionScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// grow returns a slice of n undefined values. It reuses p if p is large enough.
func grow(p []float32, n int) []float32 {
	if cap(p) < n {
		return make([]float32, n, max(n, 2*cap(p)))
	}
	return p[:n]
}
