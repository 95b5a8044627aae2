package bpe

import "slices"

// window is the number of symbols to merge at a time, small enough for the
// fastest cache.
const window = 384

// mark is the start of a part of a word, as indices of symbols and pieces.
type mark struct {
	at   int // first symbol of the part
	kept int // number of pieces before the part
	last int // first symbol of the last piece before the part
}

// mergeParts merges a long word part by part. The result is the same as if it merged the
// word at once.
//
// Why: a segment of symbols that no merge enters or leaves merges as if it were a word of
// its own, because its best pair is then the next to merge in it. So a list of pieces is the
// result of merging a word if two conditions hold. The symbols of each piece merge to that
// piece. And the symbols of every two neighbouring pieces, merged together, give these two
// pieces: the first merge across a boundary would also happen between the two neighbours on
// their own.
//
// mergeParts merges a window of symbols and keeps the pieces in its first seven eighths. The
// next window starts after them. Then it tests the second condition for the boundary
// between the two windows. If the test fails, it doubles the window and starts again at the
// last mark that is a window before the boundary, or at the start of the word. In the end
// the window is the entire word.
func (p *pairTable) mergeParts(ids []int32) int {
	var w, pair heapWord
	symbols := slices.Clone(ids)
	size := window
	marks := []mark{{}} // starts of the parts merged so far, and of the next part
	part := make([]int32, 0, 2*window)
	for {
		m := marks[len(marks)-1]
		end := min(m.at+size, len(symbols))
		part = append(part[:0], symbols[m.at:end]...)
		count := w.merge(p, part)
		firstEnd := m.at + int(w.nodes[0].next) // end of the part's first piece
		if m.at > 0 && !pair.mergesAt(p, symbols[m.last:firstEnd], m.at-m.last) {
			size *= 2
			for len(marks) > 1 && marks[len(marks)-1].at > m.at-size {
				marks = marks[:len(marks)-1]
			}
			continue
		}
		if end == len(symbols) {
			return m.kept + copy(ids[m.kept:], part[:count])
		}
		next := m
		for i := 0; int(w.nodes[i].next) <= size-size/8; next.kept++ {
			next.last = m.at + i
			i = int(w.nodes[i].next)
			next.at = m.at + i
		}
		if next == m { // the first piece is too long
			size *= 2
			continue
		}
		copy(ids[m.kept:], part[:next.kept-m.kept])
		marks = append(marks, next)
	}
}

// mergesAt reports whether symbols merge to exactly two pieces, the first of cut symbols.
func (w *heapWord) mergesAt(p *pairTable, symbols []int32, cut int) bool {
	w.copied = append(w.copied[:0], symbols...)
	return w.merge(p, w.copied) == 2 && int(w.nodes[0].next) == cut
}
