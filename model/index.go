package model

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// arrayShape holds the number of entries of each array, padding included. Extra rows form a tree
// and a leaf of their own, and extra targets point into them.
type arrayShape struct {
	rows, targets, segments, leaves, picked, lists int
}

// layoutArrays are the index arrays of a layout on a device. The batch that upload takes owns
// their memory.
type layoutArrays struct {
	shape     arrayShape
	tokens    npu.Tokens // without lists if only a forward pass follows
	positions npu.Ints
	segments  npu.Segments
	picks     npu.Ints    // [N] row of each target
	targets   npu.Ints    // [N] token of each target
	leaves    npu.Leaves  // leaves of the rows, without a format
	picked    npu.Leaves  // leaves of the targets, without a format
	owned     tokenOwners // zero unless ranks divide the vocabulary
	part      rowPart     // zero unless ranks divide the rows

	// Host copies, from which upload fills the arrays.
	hostTokens, hostPositions []int32
	hostSegments              []npu.Segment
	rows, ids                 []int32 // row and token of each target
	ends, pickedEnds          []int32 // ends of the leaves of rows and of targets
}

// vocabulary is a vocabulary and its division among ranks.
type vocabulary struct {
	size     int
	starts   []int32 // rank r has ids starts[r] to starts[r+1]; nil if ranks do not divide the vocabulary
	rank     int     // index of this rank
	sequence bool    // ranks also divide the rows of a layout
}

// rowPart is a rank's part of a layout whose rows ranks divide. Cuts are between leaves, so that a
// unit is on one rank, both a unit of rows and one of targets, whose units begin elsewhere.
type rowPart struct {
	rows    []int      // first row of each rank, then the number of rows; nil if ranks do not divide them
	targets []int      // first target of each rank, then the number of targets
	picks   npu.Ints   // row of each of this rank's targets, counted from the rank's first row
	leaves  npu.Leaves // leaves of this rank's rows
	picked  npu.Leaves // leaves of this rank's targets
}

// tokenOwners assigns each row to the rank that embeds it, the owner of the row's token. Embedding
// packs the rows by owner; rows of one owner keep their order.
type tokenOwners struct {
	counts []int    // number of rows of each owner
	ids    npu.Ints // tokens of this rank's rows, counted from the rank's first token
	places npu.Ints // [T] index of each row among the packed rows
}

// upload adds the arrays of l to b and uploads b. They are valid until b's next Begin. trained
// adds the arrays that only a backward pass uses. padded gives layouts of similar sizes the same
// shape, for a device that captures kernels. Padding changes no result, and no gradient unless
// the activations of padding tokens are not finite. With a divided vocabulary, the lists of tokens
// have only this rank's ids. upload returns an error for an id outside the vocabulary, for a row
// outside the layout or if allocation fails.
func (x *layoutArrays) upload(b *npu.Batch, vocab *vocabulary, l *attention.Layout, trained, padded bool) error {
	x.rows, x.ids = x.rows[:0], x.ids[:0]
	for _, target := range l.Targets {
		if target.Row < 0 || int(target.Row) >= l.Rows() {
			return fmt.Errorf("target at row %d, expected 0 to %d", target.Row, l.Rows()-1)
		}
		x.rows = append(x.rows, target.Row)
		x.ids = append(x.ids, target.Token)
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
	// For each row: position, the three arrays of Tokens, and two of tokenOwners. For each target: pick,
	// token, and pick of rowPart. Both layoutArrays and rowPart have leaves.
	leaves := func(ends, rows int) int { return 2 * (ends + npu.MaxUnits(ends, rows)) }
	values := 6*n + 1 + 3*targets + npu.SegmentValues(x.hostSegments) + leaves(len(x.ends), n) +
		leaves(len(x.pickedEnds), targets)
	if err := b.Begin(values); err != nil {
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
	x.shape = arrayShape{n, targets, len(x.hostSegments), len(x.ends), len(x.pickedEnds), x.tokens.Lists()}
	b.Upload()
	return nil
}

// picksOf returns the targets of a pass on a tensor rank.
func (x *layoutArrays) picksOf(rank int) layer.Targets {
	t := layer.Targets{Tokens: x.targets, Rows: x.picks, Hi: x.shape.targets, Leaves: x.picked, Own: x.picked}
	if x.part.rows != nil {
		t.Bounds, t.Lo, t.Hi = x.part.targets, x.part.targets[rank], x.part.targets[rank+1]
		t.Rows, t.Own = x.part.picks, x.part.picked
	}
	return t
}

// divide sets x.owned. In hostTokens, it replaces this rank's tokens by their ids from the rank's
// first token on, and others by -1.
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
	next := make([]int32, ranks) // place of the next row of each owner
	for r := 1; r < ranks; r++ {
		next[r] = next[r-1] + int32(x.owned.counts[r-1])
	}
	var own []int32
	places := make([]int32, len(x.hostTokens))
	local := make([]int32, len(x.hostTokens))
	for i, id := range x.hostTokens {
		r := owner(id)
		places[i] = next[r]
		local[i] = -1
		next[r]++
		if r == vocab.rank {
			local[i] = id - vocab.starts[r]
			own = append(own, local[i])
		}
	}
	x.owned.ids, x.owned.places, x.hostTokens = b.Ints(own), b.Ints(places), local
}

// leafBounds divides a layout's rows among ranks, between leaves and about evenly. It returns the
// first row of each rank, then the number of rows.
func leafBounds(l *attention.Layout, ranks int) []int {
	n := l.Rows()
	bounds := make([]int, ranks+1)
	bounds[ranks] = n
	for r := 1; r < ranks; r++ {
		ideal := n * r / ranks
		distance := func(row int) int { return max(row-ideal, ideal-row) }
		best := bounds[r-1]
		for _, end := range append([]int32{0}, l.Leaves...) {
			if row := int(end); row >= bounds[r-1] && distance(row) < distance(best) {
				best = row
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
		before := 0 // targets in rows before row; targets are in the order of leaves
		for before < len(x.rows) && int(x.rows[before]) < row {
			before++
		}
		x.part.targets[r] = before
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

// within returns the ends in (first, end], counted from first.
func within(ends []int32, first, end int) (out []int32) {
	for _, e := range ends {
		if int(e) > first && int(e) <= end {
			out = append(out, e-int32(first))
		}
	}
	return out
}

// cut sets x.ends and x.pickedEnds from the leaves of l. Leaves without targets have no entry in
// pickedEnds.
func (x *layoutArrays) cut(l *attention.Layout) {
	x.ends = append(x.ends[:0], l.Leaves...)
	x.pickedEnds = x.pickedEnds[:0]
	if len(l.Leaves) == 0 {
		x.ends = append(x.ends, int32(l.Rows()))
	}
	n := 0 // targets in the leaves so far
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

// pad copies the arrays of l, lengthens them, and returns the number of lists of tokens. There is
// at least one row of padding. Ids and targets are spread, so that few of their gradients are
// added to one row.
func (x *layoutArrays) pad(l *attention.Layout, vocab int) (lists int) {
	n := l.Rows()
	rows, targets := roundUp(n+1), roundUp(len(x.rows))
	x.hostTokens = slices.Clone(l.Tokens)
	x.hostPositions = slices.Clone(l.Positions)
	x.hostSegments = slices.Clone(l.Segments)
	x.hostSegments = append(x.hostSegments, npu.Segment{Start: int32(n), Len: int32(rows - n), Parent: -1})
	for len(x.hostSegments) < powerOfTwo(len(x.hostSegments)) { // empty segments
		x.hostSegments = append(x.hostSegments, npu.Segment{Start: int32(rows), Parent: -1})
	}
	for i := range rows - n {
		x.hostTokens = append(x.hostTokens, int32(i%vocab))
		x.hostPositions = append(x.hostPositions, int32(i))
	}
	for i := range targets - len(x.rows) { // rows must ascend, so targets beyond the padding share its last row
		x.rows = append(x.rows, int32(n+min(i, rows-n-1)))
		x.ids = append(x.ids, int32(i%vocab))
	}
	x.ends = padEnds(x.ends, rows)
	x.pickedEnds = padEnds(x.pickedEnds, targets)
	return rows
}

// padEnds appends a leaf that ends at end, then empty leaves until their number is a power of two.
func padEnds(ends []int32, end int) []int32 {
	ends = append(ends, int32(end))
	for len(ends) < powerOfTwo(len(ends)) {
		ends = append(ends, int32(end))
	}
	return ends
}

// powerOfTwo returns the smallest power of two that is at least n, for a positive n.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// roundUp rounds n up to a number with at most four significant bits, so by less than an eighth.
func roundUp(n int) int {
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
