// Package index uploads the index arrays of a pass over a layout.
package index

import (
	"fmt"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/npu"
)

// Arrays are the index arrays of a layout on a device.
type Arrays struct {
	Tokens    npu.Tokens // without lists if only a forward pass follows
	Positions npu.Ints
	Segments  npu.Segments
	Picks     npu.Ints   // [N] row of each target
	Targets   npu.Ints   // [N] token of each target
	Leaves    npu.Leaves // of the rows, without a format
	Picked    npu.Leaves // of the N targets, without a format

	rows, ids, ends, pickedEnds []int32 // on the host
}

// Upload adds the arrays of l to b and uploads b. They are valid until b's next Begin. trained
// adds those that only a backward pass uses. Upload returns an error for an id outside the
// vocabulary or if allocation fails.
func (x *Arrays) Upload(b *npu.Batch, vocab int, l *attention.Layout, trained bool) error {
	x.rows, x.ids = x.rows[:0], x.ids[:0]
	for _, target := range l.Targets {
		x.rows, x.ids = append(x.rows, target.Row), append(x.ids, target.Token)
	}
	if err := CheckTokens(vocab, l.Tokens, x.ids); err != nil {
		return err
	}
	x.cut(l)
	n, targets := l.Rows(), len(l.Targets)
	if err := b.Begin(9, 4*n+3*len(l.Segments)+2*targets+len(x.ends)+len(x.pickedEnds)); err != nil {
		return err
	}
	if trained {
		x.Tokens = b.Tokens(l.Tokens, x.ends)
		x.Leaves = b.Leaves(npu.FixedPoint{}, x.ends, n)
		x.Picked = b.Leaves(npu.FixedPoint{}, x.pickedEnds, targets)
	} else {
		x.Tokens = npu.Tokens{IDs: b.Ints(l.Tokens)}
	}
	x.Positions, x.Segments = b.Ints(l.Positions), b.Segments(l.Segments)
	x.Picks, x.Targets = b.Ints(x.rows), b.Ints(x.ids)
	b.Upload()
	return nil
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
