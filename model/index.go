package model

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/npu"
)

// arrayShape is the number of entries of each array. Entries beyond the layout's are padding: extra
// rows form a tree and a leaf of their own, and extra targets point into them.
type arrayShape struct {
	rows, targets, segments, leaves, picked, lists int
}

// layoutArrays are the index arrays of a layout on a device. Their memory is that of the
// batch that upload takes.
type layoutArrays struct {
	shape     arrayShape
	tokens    npu.Tokens // without lists if only a forward pass follows
	positions npu.Ints
	segments  npu.Segments
	picks     npu.Ints    // [N] row of each target
	targets   npu.Ints    // [N] token of each target
	leaves    npu.Leaves  // of the rows, without a format
	picked    npu.Leaves  // of the targets, without a format
	owned     tokenOwners // with a divided vocabulary
	part      rowPart     // with divided rows

	hostTokens, hostPositions, rows, ids, ends, pickedEnds []int32 // on the host
	hostSegments                                           []npu.Segment
}

// vocabulary is a vocabulary and its division among ranks.
type vocabulary struct {
	size     int
	starts   []int32 // rank r has ids starts[r] to starts[r+1]; nil if ranks do not divide it
	rank     int     // this one
	sequence bool    // ranks also divide the rows of a layout
}

// rowPart is a rank's part of a layout whose rows are cut between leaves: a gradient is
// summed leaf by leaf, so a leaf that two ranks shared would have other bits.
type rowPart struct {
	rows    []int      // first row of each rank, then the number of rows; nil if not divided
	targets []int      // the same of targets
	picks   npu.Ints   // row of each of this rank's targets, from its first row
	leaves  npu.Leaves // of its rows
	picked  npu.Leaves // of its targets
}

// tokenOwners assigns each row to the rank that embeds it: the one that has its token. Rows
// packed by rank keep their order within a rank.
type tokenOwners struct {
	counts []int    // rows of each rank
	ids    npu.Ints // this rank's ids, from the first one that it has
	places npu.Ints // [T] place of each row among the packed ones
}

// upload adds the arrays of l to b and uploads b. They are valid until b's next Begin. trained
// adds those that only a backward pass uses. padded makes layouts of similar sizes have one
// shape, for a device that captures kernels. Padding changes no result, and no gradient unless
// the activations of its tokens are not finite. With a divided vocabulary, the lists of tokens
// have only this rank's ids. upload returns an error for an id outside the vocabulary, for a row
// outside the layout or if allocation fails.
func (x *layoutArrays) upload(b *npu.Batch, vocab *vocabulary, l *attention.Layout, trained, padded bool) error {
	x.rows, x.ids = x.rows[:0], x.ids[:0]
	for _, target := range l.Targets {
		if target.Row < 0 || int(target.Row) >= l.Rows() {
			return fmt.Errorf("target at row %d, expected 0 to %d", target.Row, l.Rows()-1)
		}
		x.rows, x.ids = append(x.rows, target.Row), append(x.ids, target.Token)
	}
	if err := checkTokens(vocab.size, l.Tokens, x.ids); err != nil {
		return err
	}
	x.cut(l)
	x.hostTokens, x.hostPositions, x.hostSegments = l.Tokens, l.Positions, l.Segments
	lists := 0
	if padded {
		lists = x.pad(l, vocab.size)
	}
	n, targets := len(x.hostTokens), len(x.rows)
	if err := b.Begin(6*n + targets + 3*len(x.hostSegments) + 2*targets + 2*len(x.ends) + 2*len(x.pickedEnds)); err !=
		nil {
		return err
	}
	x.positions, x.segments = b.Ints(x.hostPositions), b.Segments(x.hostSegments)
	if x.segments.Rows > n {
		return fmt.Errorf("segments of %d rows, expected at most %d", x.segments.Rows, n)
	}
	x.picks, x.targets = b.Ints(x.rows), b.Ints(x.ids)
	x.owned = tokenOwners{}
	x.part = rowPart{}
	if vocab.starts != nil {
		x.divide(b, vocab)
	}
	if vocab.sequence {
		x.divideRows(b, vocab, l)
	}
	if trained {
		x.leaves = b.Leaves(npu.FixedPoint{}, x.ends, n)
		x.picked = b.Leaves(npu.FixedPoint{}, x.pickedEnds, targets)
		x.tokens = b.Tokens(x.hostTokens, x.ends, lists)
	} else {
		x.tokens = npu.Tokens{IDs: b.Ints(x.hostTokens)}
	}
	x.shape = arrayShape{n, targets, len(x.hostSegments), len(x.ends), len(x.pickedEnds), x.tokens.Firsts.Len()}
	b.Upload()
	return nil
}

// divide adds the arrays of x.owned and replaces the tokens by this rank's ids, and -1 for others.
func (x *layoutArrays) divide(b *npu.Batch, vocab *vocabulary) {
	ranks := len(vocab.starts) - 1
	x.owned.counts = make([]int, ranks)
	owner := func(id int32) int { // the last rank that starts at or before id
		r, found := slices.BinarySearch(vocab.starts, id)
		if !found {
			r--
		}
		return r
	}
	for _, id := range x.hostTokens {
		x.owned.counts[owner(id)]++
	}
	at := make([]int32, ranks)
	for r := 1; r < ranks; r++ {
		at[r] = at[r-1] + int32(x.owned.counts[r-1])
	}
	var own []int32
	places, local := make([]int32, len(x.hostTokens)), make([]int32, len(x.hostTokens))
	for i, id := range x.hostTokens {
		r := owner(id)
		places[i], local[i] = at[r], -1
		at[r]++
		if r == vocab.rank {
			local[i] = id - vocab.starts[r]
			own = append(own, local[i])
		}
	}
	x.owned.ids, x.owned.places, x.hostTokens = b.Ints(own), b.Ints(places), local
}

// leafBounds returns the row with which each of some ranks begins if they divide a layout's rows between
// leaves, about evenly, and after them the number of rows.
func leafBounds(l *attention.Layout, ranks int) []int {
	bounds, n := make([]int, ranks+1), l.Rows()
	bounds[ranks] = n
	for r := 1; r < ranks; r++ {
		want, best := n*r/ranks, bounds[r-1]
		for _, end := range append([]int32{0}, l.Leaves...) {
			if e := int(end); e >= bounds[r-1] && max(e-want, want-e) < max(best-want, want-best) {
				best = e
			}
		}
		bounds[r] = best
	}
	return bounds
}

// divideRows sets x.part.
func (x *layoutArrays) divideRows(b *npu.Batch, vocab *vocabulary, l *attention.Layout) {
	x.part.rows = leafBounds(l, len(vocab.starts)-1)
	x.part.targets = make([]int, len(x.part.rows))
	for r, row := range x.part.rows {
		at := 0 // targets are in the order of leaves
		for at < len(x.rows) && int(x.rows[at]) < row {
			at++
		}
		x.part.targets[r] = at
	}
	first, end := x.part.rows[vocab.rank], x.part.rows[vocab.rank+1]
	from, to := x.part.targets[vocab.rank], x.part.targets[vocab.rank+1]
	picks := make([]int32, 0, to-from)
	for _, row := range x.rows[from:to] {
		picks = append(picks, row-int32(first))
	}
	x.part.picks = b.Ints(picks)
	x.part.leaves = b.Leaves(npu.FixedPoint{}, within(x.ends, first, end), end-first)
	x.part.picked = b.Leaves(npu.FixedPoint{}, within(x.pickedEnds, from, to), to-from)
}

// within returns the ends in (first, end], from first on.
func within(ends []int32, first, end int) (out []int32) {
	for _, e := range ends {
		if int(e) > first && int(e) <= end {
			out = append(out, e-int32(first))
		}
	}
	return out
}

// cut sets the ends of the leaves of l's rows and targets.
func (x *layoutArrays) cut(l *attention.Layout) {
	x.ends, x.pickedEnds = append(x.ends[:0], l.Leaves...), x.pickedEnds[:0]
	if len(l.Leaves) == 0 {
		x.ends = append(x.ends, int32(l.Rows()))
	}
	n := 0
	for _, end := range x.ends {
		first := n
		for n < len(x.rows) && x.rows[n] < end {
			n++
		}
		if n > first {
			x.pickedEnds = append(x.pickedEnds, int32(n))
		}
	}
}

// pad lengthens the arrays of l and returns the number of lists. There is at least one row of
// padding. Ids and targets are spread, so that few of their gradients are added to one row.
func (x *layoutArrays) pad(l *attention.Layout, vocab int) (lists int) {
	n, rows, targets := l.Rows(), eighths(l.Rows()+1), eighths(len(x.rows))
	x.hostTokens, x.hostPositions = append([]int32(nil), l.Tokens...), append([]int32(nil), l.Positions...)
	x.hostSegments = append([]npu.Segment(nil), l.Segments...)
	x.hostSegments = append(x.hostSegments, npu.Segment{Start: int32(n), Len: int32(rows - n), Parent: -1})
	for len(x.hostSegments) < power(len(x.hostSegments)) {
		x.hostSegments = append(x.hostSegments, npu.Segment{Start: int32(rows), Parent: -1})
	}
	for i := range rows - n {
		x.hostTokens, x.hostPositions = append(x.hostTokens, int32(i%vocab)), append(x.hostPositions, int32(i))
	}
	for i := range targets - len(x.rows) { // ascending rows
		x.rows, x.ids = append(x.rows, int32(n+min(i, rows-n-1))), append(x.ids, int32(i%vocab))
	}
	x.ends, x.pickedEnds = fill(x.ends, rows), fill(x.pickedEnds, targets)
	return rows
}

// fill appends end to ends until their number is a power of two.
func fill(ends []int32, end int) []int32 {
	ends = append(ends, int32(end))
	for len(ends) < power(len(ends)) {
		ends = append(ends, int32(end))
	}
	return ends
}

// power returns the least power of two that is at least n, for a positive n.
func power(n int) int { return 1 << bits.Len(uint(n-1)) }

// eighths rounds n up to a number with at most four significant bits: by less than an eighth.
func eighths(n int) int {
	step := 1 << max(bits.Len(uint(n))-4, 0)
	return (n + step - 1) / step * step
}

// checkTokens rejects ids outside a vocabulary.
func checkTokens(vocab int, lists ...[]int32) error {
	for _, ids := range lists {
		for i, id := range ids {
			if id < 0 || int(id) >= vocab {
				return fmt.Errorf("token %d at row %d is outside the vocabulary of %d", id, i, vocab)
			}
		}
	}
	return nil
}
