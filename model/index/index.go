// Package index uploads the index arrays of a pass over a layout.
package index

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/npu"
)

// Shape is the number of entries of each array. Entries beyond the layout's are padding: extra
// rows form a tree and a leaf of their own, and extra targets point into them.
type Shape struct {
	Rows, Targets, Segments, Leaves, Picked, Lists int
}

// Arrays are the index arrays of a layout on a device.
type Arrays struct {
	Shape     Shape
	Tokens    npu.Tokens // without lists if only a forward pass follows
	Positions npu.Ints
	Segments  npu.Segments
	Picks     npu.Ints   // [Targets] row of each target
	Targets   npu.Ints   // [Targets] token of each target
	Leaves    npu.Leaves // of the rows, without a format
	Picked    npu.Leaves // of the targets, without a format
	Owned     Owned      // with a divided vocabulary
	Part      Part       // with divided rows

	tokens, positions, rows, ids, ends, pickedEnds []int32 // on the host
	segments                                       []npu.Segment
}

// Vocab is a vocabulary. If ranks divide it, rank r has ids Starts[r] to Starts[r+1], and Rank is
// this one; otherwise Starts is nil.
type Vocab struct {
	Size   int
	Starts []int32
	Rank   int
	// Sequence also divides rows among the ranks.
	Sequence bool
}

// Part is a rank's part of a layout whose rows are cut between leaves. Rows and Targets hold each
// rank's first row and target, then the total.
type Part struct {
	Rows, Targets []int
	Picks         npu.Ints   // of this rank's targets, from its first row
	Leaves        npu.Leaves // of its rows
	Picked        npu.Leaves // of its targets
}

// Owned says which rank embeds each row. Rows packed by rank keep their order within a rank.
type Owned struct {
	Counts []int    // rows of each rank
	IDs    npu.Ints // this rank's ids, from the first one that it has
	Places npu.Ints // [Rows] place of each row among the packed ones
}

// Upload adds the arrays of l to b and uploads b. They are valid until b's next Begin. trained
// adds those that only a backward pass uses. padded makes layouts of similar sizes have one
// shape, for a device that captures kernels. Padding changes no result, and no gradient unless
// the activations of its tokens are not finite. Upload returns an error for an id outside the
// vocabulary, for a row outside the layout or if allocation fails. With a divided vocabulary,
// Tokens has lists of this rank's ids only and no other ids.
func (x *Arrays) Upload(b *npu.Batch, vocab *Vocab, l *attention.Layout, trained, padded bool) error {
	x.rows, x.ids = x.rows[:0], x.ids[:0]
	for _, target := range l.Targets {
		if target.Row < 0 || int(target.Row) >= l.Rows() {
			return fmt.Errorf("target at row %d, expected 0 to %d", target.Row, l.Rows()-1)
		}
		x.rows, x.ids = append(x.rows, target.Row), append(x.ids, target.Token)
	}
	if err := CheckTokens(vocab.Size, l.Tokens, x.ids); err != nil {
		return err
	}
	x.cut(l)
	x.tokens, x.positions, x.segments = l.Tokens, l.Positions, l.Segments
	lists := 0
	if padded {
		lists = x.pad(l, vocab.Size)
	}
	n, targets := len(x.tokens), len(x.rows)
	if err := b.Begin(6*n + targets + 3*len(x.segments) + 2*targets + 2*len(x.ends) + 2*len(x.pickedEnds)); err != nil {
		return err
	}
	x.Positions, x.Segments = b.Ints(x.positions), b.Segments(x.segments)
	if x.Segments.Rows > n {
		return fmt.Errorf("segments of %d rows, expected at most %d", x.Segments.Rows, n)
	}
	x.Picks, x.Targets = b.Ints(x.rows), b.Ints(x.ids)
	x.Owned = Owned{}
	x.Part = Part{}
	if vocab.Starts != nil {
		x.divide(b, vocab)
	}
	if vocab.Sequence {
		x.divideRows(b, vocab, l)
	}
	if trained {
		x.Leaves = b.Leaves(npu.FixedPoint{}, x.ends, n)
		x.Picked = b.Leaves(npu.FixedPoint{}, x.pickedEnds, targets)
		x.Tokens = b.Tokens(x.tokens, x.ends, lists)
	} else {
		x.Tokens = npu.Tokens{IDs: b.Ints(x.tokens)}
	}
	x.Shape = Shape{n, targets, len(x.segments), len(x.ends), len(x.pickedEnds), x.Tokens.Firsts.Len()}
	b.Upload()
	return nil
}

// divide adds the arrays of Owned and replaces the tokens by this rank's ids, and -1 for others.
func (x *Arrays) divide(b *npu.Batch, vocab *Vocab) {
	ranks := len(vocab.Starts) - 1
	x.Owned.Counts = make([]int, ranks)
	owner := func(id int32) int { // the last rank that starts at or before id
		r, found := slices.BinarySearch(vocab.Starts, id)
		if !found {
			r--
		}
		return r
	}
	for _, id := range x.tokens {
		x.Owned.Counts[owner(id)]++
	}
	at := make([]int32, ranks)
	for r := 1; r < ranks; r++ {
		at[r] = at[r-1] + int32(x.Owned.Counts[r-1])
	}
	var own []int32
	places, local := make([]int32, len(x.tokens)), make([]int32, len(x.tokens))
	for i, id := range x.tokens {
		r := owner(id)
		places[i], local[i] = at[r], -1
		at[r]++
		if r == vocab.Rank {
			local[i] = id - vocab.Starts[r]
			own = append(own, local[i])
		}
	}
	x.Owned.IDs, x.Owned.Places, x.tokens = b.Ints(own), b.Ints(places), local
}

// Rows returns the row with which each of some ranks begins if they divide a layout's rows between
// leaves, about evenly, and after them the number of rows.
func Rows(l *attention.Layout, ranks int) []int {
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

// divideRows sets Part.
func (x *Arrays) divideRows(b *npu.Batch, vocab *Vocab, l *attention.Layout) {
	x.Part.Rows = Rows(l, len(vocab.Starts)-1)
	x.Part.Targets = make([]int, len(x.Part.Rows))
	for r, row := range x.Part.Rows {
		at := 0 // targets are in the order of leaves
		for at < len(x.rows) && int(x.rows[at]) < row {
			at++
		}
		x.Part.Targets[r] = at
	}
	first, end := x.Part.Rows[vocab.Rank], x.Part.Rows[vocab.Rank+1]
	from, to := x.Part.Targets[vocab.Rank], x.Part.Targets[vocab.Rank+1]
	picks := make([]int32, 0, to-from)
	for _, row := range x.rows[from:to] {
		picks = append(picks, row-int32(first))
	}
	x.Part.Picks = b.Ints(picks)
	x.Part.Leaves = b.Leaves(npu.FixedPoint{}, within(x.ends, first, end), end-first)
	x.Part.Picked = b.Leaves(npu.FixedPoint{}, within(x.pickedEnds, from, to), to-from)
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
func (x *Arrays) cut(l *attention.Layout) {
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
func (x *Arrays) pad(l *attention.Layout, vocab int) (lists int) {
	n, rows, targets := l.Rows(), eighths(l.Rows()+1), eighths(len(x.rows))
	x.tokens, x.positions = append([]int32(nil), l.Tokens...), append([]int32(nil), l.Positions...)
	x.segments = append([]npu.Segment(nil), l.Segments...)
	x.segments = append(x.segments, npu.Segment{Start: int32(n), Len: int32(rows - n), Parent: -1})
	for len(x.segments) < power(len(x.segments)) {
		x.segments = append(x.segments, npu.Segment{Start: int32(rows), Parent: -1})
	}
	for i := range rows - n {
		x.tokens, x.positions = append(x.tokens, int32(i%vocab)), append(x.positions, int32(i))
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

// CheckTokens rejects ids outside a vocabulary.
func CheckTokens(vocab int, lists ...[]int32) error {
	for _, ids := range lists {
		for i, id := range ids {
			if id < 0 || int(id) >= vocab {
				return fmt.Errorf("token %d at row %d is outside the vocabulary of %d", id, i, vocab)
			}
		}
	}
	return nil
}
