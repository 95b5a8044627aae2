// Package attention lays out token sequences that share prefixes, so that a prompt is
// computed once for all its responses.
//
// A Layout is a forest of segments. A group of a prompt and its responses is a root with
// children, independent sequences are roots, and a conversation that branches is a deeper
// tree. The forest determines positions, what a row attends to, which tokens carry loss and
// how several groups share a batch (Lu 2025, section 4.2).
package attention

import (
	"errors"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/rollout"
)

// Layout holds the rows of one forward pass, in order, without padding. The zero Layout is
// empty and ready to use. It is not safe for concurrent use.
type Layout struct {
	Tokens    []int32       // [rows] token ids
	Positions []int32       // [rows] position in the row's own sequence, from 0 at its root
	Segments  []npu.Segment // in order of their rows, parents before children
	Targets   []Target      // tokens that carry loss, in order of the rows that hold them
	// Leaves[i] is the row after leaf i (see npu.Leaves), ascending; the last one is Rows(). A
	// leaf consists of whole trees. Without Leaves, all rows are one leaf.
	Leaves []int32
}

// LeafRows returns the maximum number of rows of a leaf that holds a prompt of the given
// number of tokens and several responses to it. A larger group is cut into several leaves,
// each with the prompt. A leaf with a single response may have more rows. Each leaf costs a pass over
// all sums of gradients, and its activations are in memory at once: they are half as large in npu.BF16.
func LeafRows(n npu.Numerics, prompt int) int {
	rows := 4096
	if n == npu.BF16 {
		rows = 16384
	}
	return max(rows, 2*prompt)
}

// Target is a token to predict: row Row predicts Token, which is token Offset of segment
// Segment. For Offset 0, Row is the last row of the segment's ancestors. The last target that
// AddTrajectory adds has Offset Len, because its token has no row.
type Target struct {
	Row, Token, Segment, Offset int32
}

// Rows returns the number of rows.
func (l *Layout) Rows() int { return len(l.Tokens) }

// Reset empties l and keeps its memory.
func (l *Layout) Reset() {
	l.Tokens, l.Positions = l.Tokens[:0], l.Positions[:0]
	l.Segments = l.Segments[:0]
	l.Targets = l.Targets[:0]
	l.Leaves = l.Leaves[:0]
}

// Clone returns a copy that shares no memory with l.
func (l *Layout) Clone() *Layout {
	return &Layout{slices.Clone(l.Tokens), slices.Clone(l.Positions), slices.Clone(l.Segments), slices.Clone(l.Targets),
		slices.Clone(l.Leaves)}
}

// EndLeaf ends a leaf after the last row. It does nothing if no row follows the previous leaf.
func (l *Layout) EndLeaf() {
	rows := int32(l.Rows())
	if n := len(l.Leaves); rows > 0 && (n == 0 || l.Leaves[n-1] < rows) {
		l.Leaves = append(l.Leaves, rows)
	}
}

// Add appends a segment that continues segment parent, or starts a sequence if parent is
// -1, and returns its index. With loss, every token of the segment that has a row before it
// becomes a target. Add panics if parent does not exist.
func (l *Layout) Add(parent int, tokens []int32, loss bool) int {
	if parent < -1 || parent >= len(l.Segments) {
		panic(fmt.Sprintf("attention: parent %d of segment %d, expected an earlier segment or -1", parent,
			len(l.Segments)))
	}
	segment, start := len(l.Segments), len(l.Tokens)
	position := l.end(parent)
	row := l.lastRow(parent) // the row that predicts the next token, or -1
	for i, token := range tokens {
		l.Tokens = append(l.Tokens, token)
		l.Positions = append(l.Positions, position+int32(i))
		if loss && row >= 0 {
			l.Targets = append(l.Targets, Target{Row: row, Token: token, Segment: int32(segment), Offset: int32(i)})
		}
		row = int32(start + i)
	}
	l.Segments = append(l.Segments, npu.Segment{Start: int32(start), Len: int32(len(tokens)), Parent: int32(parent)})
	return segment
}

// AddResponse is AddTrajectory for a response whose tokens are all targets. Its last token gets no row.
func (l *Layout) AddResponse(parent int, tokens []int32) int {
	return l.AddTrajectory(parent, rollout.Demonstrated(tokens), rollout.IsTrained)
}

// AddTrajectory appends a segment with the spans of t, and returns its index. The segment must not get
// children. The tokens of the spans that isTarget selects become targets if they have a row before them. The
// last target and the tokens after it predict no target, so they get no rows.
func (l *Layout) AddTrajectory(parent int, t rollout.Trajectory, isTarget func(*rollout.Span) bool) int {
	ids, rows := t.IDs(), TrajectoryRows(t, isTarget)
	segment := l.Add(parent, ids[:rows], false)
	start := l.Segments[segment].Start
	offset := 0
	for i := range t {
		end := offset + len(t[i].IDs)
		for ; offset < end && isTarget(&t[i]); offset++ {
			row := start + int32(offset) - 1
			if offset == 0 {
				row = l.lastRow(parent)
			}
			if row >= 0 {
				l.Targets = append(l.Targets,
					Target{Row: row, Token: ids[offset], Segment: int32(segment), Offset: int32(offset)})
			}
		}
		offset = end
	}
	return segment
}

// TrajectoryRows returns the number of rows that AddTrajectory appends.
func TrajectoryRows(t rollout.Trajectory, isTarget func(*rollout.Span) bool) int {
	rows, end := 0, 0
	for i := range t {
		end += len(t[i].IDs)
		if len(t[i].IDs) > 0 && isTarget(&t[i]) {
			rows = end - 1
		}
	}
	return rows
}

// AddGroup appends a prompt and its responses, and returns the indices of their segments, one
// for each response. All tokens of the responses carry loss and, unlike in AddResponse, have a row.
func (l *Layout) AddGroup(prompt []int32, responses [][]int32) (root int, children []int) {
	root = l.Add(-1, prompt, false)
	children = make([]int, len(responses))
	for i, response := range responses {
		children[i] = l.Add(root, response, true)
	}
	return root, children
}

// end returns the position after segment, or 0 for -1.
func (l *Layout) end(segment int) int32 {
	position := int32(0)
	for ; segment >= 0; segment = int(l.Segments[segment].Parent) {
		position += l.Segments[segment].Len
	}
	return position
}

// lastRow returns the row of the last token up to the end of segment, or -1.
func (l *Layout) lastRow(segment int) int32 {
	for ; segment >= 0; segment = int(l.Segments[segment].Parent) {
		if s := l.Segments[segment]; s.Len > 0 {
			return s.Start + s.Len - 1
		}
	}
	return -1
}

// SegmentOf returns the segment that holds row.
func (l *Layout) SegmentOf(row int) int {
	index, _ := slices.BinarySearchFunc(l.Segments, row, func(s npu.Segment, row int) int {
		if int(s.Start+s.Len) <= row {
			return -1 // the segment ends before row
		}
		return 1
	})
	return index
}

// Visible reports whether row query attends to row key, according to the dense mask that
// the forest represents (Lu 2025, figure 2). Kernels never build this mask.
func (l *Layout) Visible(query, key int) bool {
	keySegment := l.SegmentOf(key)
	for s := l.SegmentOf(query); s >= 0; s = int(l.Segments[s].Parent) {
		if s == keySegment {
			return key <= query
		}
	}
	return false
}

// Validate checks a layout that does not come from the methods of this package. It reports the
// first fault of the segments or, if there is none, the first of the rows, targets and leaves each.
func (l *Layout) Validate() error {
	if len(l.Positions) != len(l.Tokens) {
		return fmt.Errorf("layout: %d positions, expected %d, one per token", len(l.Positions), len(l.Tokens))
	}
	if err := l.validateSegments(); err != nil {
		return err
	}
	return errors.Join(l.validateRows(), l.validateTargets(), l.validateLeaves())
}

// validateSegments checks that segments cover all rows in order and follow their parents.
func (l *Layout) validateSegments() error {
	next := int32(0)
	for i, s := range l.Segments {
		switch {
		case s.Start != next:
			return fmt.Errorf("layout: segment %d starts at row %d, expected %d", i, s.Start, next)
		case s.Len < 0 || int(s.Len) > len(l.Tokens)-int(s.Start):
			return fmt.Errorf("layout: segment %d has %d rows, expected 0 to %d", i, s.Len, len(l.Tokens)-int(s.Start))
		case s.Parent < -1 || int(s.Parent) >= i:
			return fmt.Errorf("layout: segment %d has parent %d, expected an earlier segment or -1", i, s.Parent)
		}
		next += s.Len
	}
	if int(next) != len(l.Tokens) {
		return fmt.Errorf("layout: segments hold %d rows, expected %d", next, len(l.Tokens))
	}
	return nil
}

// validateLeaves checks that leaves cover all rows in order and consist of whole trees.
func (l *Layout) validateLeaves() error {
	if len(l.Leaves) == 0 {
		return nil
	}
	mayEnd := map[int32]bool{int32(l.Rows()): true} // rows at which a leaf may end
	for _, s := range l.Segments {
		if s.Parent < 0 {
			mayEnd[s.Start] = true
		}
	}
	last := int32(0)
	for i, end := range l.Leaves {
		if end <= last || !mayEnd[end] {
			return fmt.Errorf("layout: leaf %d ends at row %d, expected the start of a later tree or %d", i,
				end, l.Rows())
		}
		last = end
	}
	if int(last) != l.Rows() {
		return fmt.Errorf("layout: leaves hold %d rows, expected %d", last, l.Rows())
	}
	return nil
}

// validateRows checks positions, which Add derives from segments, and token ids.
func (l *Layout) validateRows() error {
	for i, s := range l.Segments {
		first := l.end(int(s.Parent))
		for j := range s.Len {
			row := s.Start + j
			if p := l.Positions[row]; p != first+j {
				return fmt.Errorf("layout: row %d of segment %d has position %d, expected %d", row, i, p, first+j)
			}
			if token := l.Tokens[row]; token < 0 {
				return fmt.Errorf("layout: row %d has token %d, expected 0 or more", row, token)
			}
		}
	}
	return nil
}

// validateTargets checks that Row of each target is the row before its token, and that Token is
// the token in its own row, if it has one.
func (l *Layout) validateTargets() error {
	for i, t := range l.Targets {
		if t.Segment < 0 || int(t.Segment) >= len(l.Segments) {
			return fmt.Errorf("layout: target %d is in segment %d, expected 0 to %d", i, t.Segment, len(l.Segments)-1)
		}
		s := l.Segments[t.Segment]
		if t.Offset < 0 || t.Offset > s.Len {
			return fmt.Errorf("layout: target %d is token %d of segment %d, expected 0 to %d", i, t.Offset,
				t.Segment, s.Len)
		}
		row := s.Start + t.Offset - 1
		if t.Offset == 0 {
			row = l.lastRow(int(s.Parent))
		}
		if t.Row != row || row < 0 {
			return fmt.Errorf("layout: target %d is predicted by row %d, expected %d", i, t.Row, row)
		}
		if t.Offset == s.Len { // added by AddTrajectory: it has no row
			continue
		}
		if token := l.Tokens[s.Start+t.Offset]; t.Token != token {
			return fmt.Errorf("layout: target %d is token id %d, expected %d", i, t.Token, token)
		}
	}
	return nil
}
