package cpu

import (
	"math"
	"slices"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/internal/check"
)

// In this file, a row is a token, h the shape of the heads and c a key-value head. Each key-value head has a group of
// query heads. A lane is a row and a query head of the group; the lanes of a row follow each other.

// Attention implements npu.Device.
func (d *pureGo) Attention(out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.OptionalLen("attention: stats", stats, check.StatsLen(q, h))
	outs, done := write(out)
	defer done()
	segments, tiles := segmentList(forest), forest.Tiles.Int32s()
	a := attend{d.chains, h, outs, stats.Float32s(), read(q), k, v}
	d.parallel(len(tiles)/2*h.KV, func(task int) {
		seg, first := tiles[task/h.KV*2], tiles[task/h.KV*2+1]
		c := task % h.KV
		if seg < 0 {
			return
		}
		path := pathOf(segments, seg)
		n := min(npu.RowTile, segments[seg].Len-first)
		before := len(path) - int(segments[seg].Len-first)
		lens := make([]int, n)
		for i := range lens {
			lens[i] = before + i + 1
		}
		a.rows(int(segments[seg].Start+first), lens, c, func(j int) int { return (int(path[j])*h.KV + c) * h.Dim })
	})
}

// AttentionCached implements npu.Device.
func (d *pureGo) AttentionCached(out, q, cacheK, cacheV npu.Buffer, tables *npu.Tables, h npu.Heads) {
	d.check.AttentionCached(out, q, cacheK, cacheV, tables, h)
	outs, done := write(out)
	defer done()
	pages, rows, blocks := tables.Pages.Int32s(), tables.Rows.Int32s(), tables.Blocks.Int32s()
	a := attend{d.chains, h, outs, nil, read(q), cacheK, cacheV}
	d.parallel((len(blocks)-1)*h.KV, func(task int) {
		first, end := int(blocks[task/h.KV]), int(blocks[task/h.KV+1])
		c := task % h.KV
		if first == end {
			return
		}
		lens := make([]int, end-first)
		for i, n := range tables.Lens.Int32s()[first:end] {
			lens[i] = int(n)
		}
		list := pages[int(rows[first])*tables.Stride:]
		a.rows(first, lens, c, func(j int) int {
			return cacheRow(int(list[j/npu.PageSize])*npu.PageSize+j%npu.PageSize, c, h)
		})
	})
}

// attend holds the operands of the recurrence of npu.AttentionKernels.
type attend struct {
	chains        chains
	h             npu.Heads
	out, stats, q []float32 // stats may be nil
	k, v          npu.Buffer
}

const (
	noMaximum    = -1 << 20 // maximum of a row before its first key
	clampMaximum = 1 << 19  // largest magnitude of a scaled score that maxima count
)

// rows computes the rows from first on for key-value head c. Row i sees the first lens[i] positions of a sequence; lens
// do not fall. at returns where the values of a position begin in a.k and a.v.
func (a *attend) rows(first int, lens []int, c int, at func(j int) int) {
	group, dim := a.h.Q/a.h.KV, a.h.Dim
	lanes := len(lens) * group
	q := gatherLanes(a.q, first, len(lens), c, a.h)
	total, split := newSums(lanes, dim), newSums(lanes, dim)
	end := lens[len(lens)-1]
	for start := 0; start < end; start += npu.KeySplit {
		split.clear()
		for tile := start; tile < min(end, start+npu.KeySplit); tile += npu.KeyTile {
			// Rows from lo to hi see positions of the tile.
			lo, hi := 0, len(lens)
			for lo < hi && lens[lo] <= tile {
				lo++
			}
			for hi > lo && lens[hi-1]-windowOf(a.h) >= tile+npu.KeyTile {
				hi--
			}
			if lo == hi {
				continue
			}
			n := min(npu.KeyTile, end-tile)
			keys := a.chains.factor(a.gather(a.k, tile, n, at).transposed())
			values := a.chains.factor(a.gather(a.v, tile, n, at))
			s := rowMajor(make([]float32, (hi-lo)*group*n), (hi-lo)*group, n)
			keys.multiply(s.values, n, rowMajor(q[lo*group*dim:], s.rows, dim))
			for i := range s.rows {
				lane := lo*group + i
				seen := lens[lane/group]
				a.weights(split, lane, s.values[i*n:(i+1)*n], max(0, seen-windowOf(a.h)-tile), min(n, seen-tile))
			}
			values.multiply(split.o[lo*group*dim:], dim, s)
		}
		for lane := range lanes {
			a.merge(total, split, lane)
		}
	}
	for lane := range lanes {
		query := (first+lane/group)*a.h.Q + c*group + lane%group
		inverse := 1 / total.l[lane]
		for e, o := range total.o[lane*dim : (lane+1)*dim] {
			a.out[query*dim+e] = float32(o*inverse) + 0
		}
		if a.stats != nil {
			a.stats[2*query], a.stats[2*query+1] = total.m[lane], inverse
		}
	}
}

// gather returns n positions of x, which are keys or values, as a grid [n, Dim].
func (a *attend) gather(x npu.Buffer, first, n int, at func(j int) int) grid {
	g := rowMajor(make([]float32, n*a.h.Dim), n, a.h.Dim)
	for j := range n {
		load(g.values[j*a.h.Dim:(j+1)*a.h.Dim], x, at(first+j))
	}
	return g
}

// sums are the maxima, the sums of weights and the weighted values [lanes, Dim] of lanes.
type sums struct {
	m, l, o []float32
	dim     int
}

func newSums(lanes, dim int) *sums {
	s := &sums{make([]float32, lanes), make([]float32, lanes), make([]float32, lanes*dim), dim}
	s.clear()
	return s
}

func (s *sums) clear() {
	for i := range s.m {
		s.m[i] = noMaximum
	}
	clear(s.l)
	clear(s.o)
}

// weights replaces the scores s of a tile and a lane, which sees those from lo to hi, by weights. It prepares the
// lane's sums for them.
func (a *attend) weights(sums *sums, lane int, s []float32, lo, hi int) {
	if lo >= hi {
		clear(s)
		return
	}
	scale, top := scoreScale(a.h.Dim), float32(math.Inf(-1))
	for _, x := range s[lo:hi] {
		if x > top {
			top = x
		}
	}
	was := sums.m[lane]
	m := max(was, float32(math.RoundToEven(float64(max(-clampMaximum, min(clampMaximum, float32(top*scale))))))+1)
	var p [foldLanes]float32
	for j, x := range s {
		s[j] = 0
		if lo <= j && j < hi {
			s[j] = a.chains.round(a.chains.exp2(fma32(x, scale, -m)))
		}
		p[j%foldLanes] += s[j]
	}
	shrink := a.chains.pow2(was - m)
	sums.m[lane], sums.l[lane] = m, fma32(sums.l[lane], shrink, foldPartials(&p))
	for e := lane * sums.dim; e < (lane+1)*sums.dim; e++ {
		sums.o[e] = float32(sums.o[e] * shrink)
	}
}

// merge adds a lane's sums of a split to those of the splits before.
func (a *attend) merge(total, split *sums, lane int) {
	m := max(total.m[lane], split.m[lane])
	x, y := a.chains.pow2(total.m[lane]-m), a.chains.pow2(split.m[lane]-m)
	total.m[lane], total.l[lane] = m, fma32(split.l[lane], y, float32(total.l[lane]*x))
	for e := lane * total.dim; e < (lane+1)*total.dim; e++ {
		total.o[e] = fma32(split.o[e], y, float32(total.o[e]*x))
	}
}

// gatherLanes returns the lanes [n·group, Dim] of n rows of x [T, Q, Dim] from row first on.
func gatherLanes(x []float32, first, n, c int, h npu.Heads) []float32 {
	group := h.Q / h.KV
	lanes := make([]float32, 0, n*group*h.Dim)
	for row := first; row < first+n; row++ {
		lanes = append(lanes, x[(row*h.Q+c*group)*h.Dim:][:group*h.Dim]...)
	}
	return lanes
}

// AttentionBackward implements npu.Device. All rows that attend to a key are in the tree of one root, so one task
// computes the tree's gradients of a key-value head.
func (d *pureGo) AttentionBackward(dq, dk, dv, dOut, out, stats, q, k, v npu.Buffer, forest npu.Segments, h npu.Heads) {
	d.check.Attention(out, q, k, v, forest, h)
	d.check.Attention(dOut, dq, dk, dv, forest, h)
	d.check.Values("attention backward: dq", dq, q.Len())
	d.check.Len("attention backward: stats", stats, check.StatsLen(q, h))
	b := pureGoBackward{
		chains: d.chains, h: h, segments: segmentList(forest),
		dOut: read(dOut), out: read(out), stats: stats.Float32s(), q: read(q), k: read(k), v: read(v),
	}
	var done [3]func()
	b.dq, done[0] = write(dq)
	b.dk, done[1] = write(dk)
	b.dv, done[2] = write(dv)
	trees := treesOf(b.segments)
	d.parallel(len(trees)*h.KV, func(task int) { b.tree(trees[task/h.KV], task%h.KV) })
	for _, f := range done {
		f()
	}
}

// pureGoBackward holds the operands of one backward pass.
type pureGoBackward struct {
	chains                                chains
	h                                     npu.Heads
	segments                              []npu.Segment
	dq, dk, dv, dOut, out, stats, q, k, v []float32
}

// tree runs the backward pass of key-value head c over a root and its descendants,
// given as ascending segment indices.
func (b *pureGoBackward) tree(tree []int32, c int) {
	for _, seg := range tree {
		s := b.segments[seg]
		for row := s.Start; row < s.Start+s.Len; row++ {
			clear(b.keyRow(b.dk, row, c))
			clear(b.keyRow(b.dv, row, c))
		}
	}
	for _, seg := range tree {
		for first := int32(0); first < b.segments[seg].Len; first += npu.PartRows {
			b.part(seg, first, c)
		}
	}
	scale := inverseRoot(b.h.Dim)
	for _, seg := range tree {
		s := b.segments[seg]
		for row := s.Start; row < s.Start+s.Len; row++ {
			dk := b.keyRow(b.dk, row, c)
			for e := range dk {
				dk[e] = float32(dk[e] * scale)
			}
		}
	}
}

// queries are rows of a part, with operands and factors [lanes, Dim], and their chains dq [lanes, Dim].
type queries struct {
	first, position int // row, and position in its sequence
	rows            int
	q, dOut         []float32
	byQ, byDOut     factor
	dot, m, inverse []float32 // D and stats of lanes
	dq              []float32
}

// part runs the backward pass of the part of seg that begins with its row first. It takes queryRows rows and tiles of
// keyRows keys at a time, which are whole steps of chains.
func (b *pureGoBackward) part(seg, first int32, c int) {
	const queryRows, keyRows = 64, 64
	s := b.segments[seg]
	end := min(s.Len, first+npu.PartRows)
	path := segmentPath(b.segments, seg)
	position := 0 // of the first row of seg
	for _, ancestor := range path[:len(path)-1] {
		position += int(b.segments[ancestor].Len)
	}
	var blocks []*queries
	for i := first; i < end; i += queryRows {
		blocks = append(blocks, b.queries(int(s.Start+i), position+int(i), int(min(queryRows, end-i)), c))
	}
	position = 0
	for _, other := range path {
		keys := b.segments[other]
		n := keys.Len
		if other == seg {
			n = end
		}
		for i := int32(0); i < n; i += keyRows {
			b.keys(int(keys.Start+i), position+int(i), int(min(keyRows, n-i)), c, blocks)
		}
		position += int(keys.Len)
	}
	group, root := b.h.Q/b.h.KV, inverseRoot(b.h.Dim)
	for _, qs := range blocks {
		for i, x := range qs.dq {
			lane, e := i/b.h.Dim, i%b.h.Dim
			row, head := qs.first+lane/group, c*group+lane%group
			b.dq[(row*b.h.Q+head)*b.h.Dim+e] = float32((x + 0) * root)
		}
	}
}

// queries returns n rows from first on.
func (b *pureGoBackward) queries(first, position, n, c int) *queries {
	group, dim := b.h.Q/b.h.KV, b.h.Dim
	qs := &queries{
		first: first, position: position, rows: n,
		q: gatherLanes(b.q, first, n, c, b.h), dOut: gatherLanes(b.dOut, first, n, c, b.h),
	}
	out := gatherLanes(b.out, first, n, c, b.h)
	lanes := n * group
	qs.dq = make([]float32, lanes*dim)
	qs.byQ = b.chains.factor(rowMajor(qs.q, lanes, dim))
	qs.byDOut = b.chains.factor(rowMajor(qs.dOut, lanes, dim))
	for lane := range lanes {
		var partial [foldLanes]float32
		for e := range dim {
			partial[e%foldLanes] = fma32(qs.dOut[lane*dim+e], out[lane*dim+e], partial[e%foldLanes])
		}
		query := (first+lane/group)*b.h.Q + c*group + lane%group
		qs.dot = append(qs.dot, foldPartials(&partial))
		qs.m, qs.inverse = append(qs.m, b.stats[2*query]), append(qs.inverse, b.stats[2*query+1])
	}
	return qs
}

// keys adds the gradients of n rows of keys from first on, of the queries of a part, to dk and dv, and continues the
// queries' chains of dq.
func (b *pureGoBackward) keys(first, position, n, c int, blocks []*queries) {
	dim, group := b.h.Dim, b.h.Q/b.h.KV
	stride, start := b.h.KV*dim, (first*b.h.KV+c)*dim
	k, v := grid{b.k[start:], n, dim, stride, 1}, grid{b.v[start:], n, dim, stride, 1}
	byKeys, byValues, byK := b.chains.factor(k.transposed()), b.chains.factor(v.transposed()), b.chains.factor(k)
	dk, dv, scale := make([]float32, n*dim), make([]float32, n*dim), scoreScale(dim)
	for _, qs := range blocks {
		if qs.position+qs.rows <= position || qs.position-windowOf(b.h) >= position+n-1 {
			continue // no row sees a key
		}
		lanes := qs.rows * group
		p, ds := rowMajor(make([]float32, lanes*n), lanes, n), rowMajor(make([]float32, lanes*n), lanes, n)
		byKeys.multiply(p.values, n, rowMajor(qs.q, lanes, dim))
		byValues.multiply(ds.values, n, rowMajor(qs.dOut, lanes, dim))
		for i := range p.values {
			lane := i / n
			query, key := qs.position+lane/group, position+i%n
			if key > query || query-key >= windowOf(b.h) {
				p.values[i], ds.values[i] = 0, 0
				continue
			}
			x := float32(b.chains.exp2(fma32(p.values[i], scale, -qs.m[lane])) * qs.inverse[lane])
			p.values[i] = b.chains.round(x)
			ds.values[i] = b.chains.round(float32(x * float32(ds.values[i]-qs.dot[lane])))
		}
		qs.byQ.multiply(dk, dim, ds.transposed())
		qs.byDOut.multiply(dv, dim, p.transposed())
		byK.multiply(qs.dq, dim, ds)
	}
	for j := range n {
		for e := range dim {
			b.dk[start+j*stride+e] += dk[j*dim+e]
			b.dv[start+j*stride+e] += dv[j*dim+e]
		}
	}
}

// keyRow returns the values of a row and key-value head in x [T, KV, Dim].
func (b *pureGoBackward) keyRow(x []float32, row int32, c int) []float32 {
	return x[(int(row)*b.h.KV+c)*b.h.Dim:][:b.h.Dim]
}

// CacheWrite implements npu.Device. The layout of a page is [KV][PageSize][Dim] for keys and values.
func (d *pureGo) CacheWrite(cacheK, cacheV, k, v npu.Buffer, slots npu.Ints, h npu.Heads) {
	d.check.CacheWrite(cacheK, cacheV, k, v, slots, h)
	for t, slot := range slots.Int32s() {
		for c := range h.KV {
			to, from := cacheRow(int(slot), c, h), (t*h.KV+c)*h.Dim
			d.Copy(cacheK.Slice(to, to+h.Dim), k.Slice(from, from+h.Dim))
			d.Copy(cacheV.Slice(to, to+h.Dim), v.Slice(from, from+h.Dim))
		}
	}
}

// cacheRow returns where the values of a slot and key-value head begin in a cache.
func cacheRow(slot, c int, h npu.Heads) int {
	page, offset := slot/npu.PageSize, slot%npu.PageSize
	return ((page*h.KV+c)*npu.PageSize + offset) * h.Dim
}

// segmentList returns the segments of a forest.
func segmentList(forest npu.Segments) []npu.Segment {
	list, words := make([]npu.Segment, forest.N), forest.Int32s()
	for i := range list {
		list[i] = npu.Segment{Start: words[4*i], Len: words[4*i+1], Parent: words[4*i+2]}
	}
	return list
}

// segmentPath returns seg and its ancestors, the root first.
func segmentPath(segments []npu.Segment, seg int32) []int32 {
	var path []int32
	for s := seg; s >= 0; s = segments[s].Parent {
		path = append(path, s)
	}
	slices.Reverse(path)
	return path
}

// pathOf returns the rows of seg and its ancestors by position.
func pathOf(segments []npu.Segment, seg int32) []int32 {
	var rows []int32
	for _, i := range segmentPath(segments, seg) {
		for row := segments[i].Start; row < segments[i].Start+segments[i].Len; row++ {
			rows = append(rows, row)
		}
	}
	return rows
}

// treesOf returns the indices of the segments of each tree, ascending. Trees are in the order of
// their roots.
func treesOf(segments []npu.Segment) [][]int32 {
	var trees [][]int32
	tree := make([]int, len(segments)) // index in trees, by segment
	for s, seg := range segments {
		if seg.Parent < 0 {
			tree[s] = len(trees)
			trees = append(trees, nil)
		} else {
			tree[s] = tree[seg.Parent]
		}
		trees[tree[s]] = append(trees[tree[s]], int32(s))
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
