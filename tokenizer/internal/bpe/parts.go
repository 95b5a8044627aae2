package bpe

import "slices"

// window is the number of symbols to merge at a time, small enough for the
// fastest cache.
const window = 384

// mark is the start of a part of a word.
type mark struct {
	at   int // index of its first symbol
	kept int // pieces before it
	last int // first symbol of the last of these pieces
}

// mergeParts merges a long word part by part, with the same result as merging it
// whole.
//
// As long as no merge crosses the ends of a segment, the merges within it are
// those of the segment alone, in the same order: the best pair of the word is the
// best pair of its segment. So a list of pieces is the result if the symbols of
// each piece merge to it, and the symbols of each two neighbours, merged
// together, give the two pieces: the first merge across a boundary would also
// happen between the two neighbours alone. mergeParts merges a part with some of
// the following symbols, keeps all but its last pieces, and starts the next part
// at their end, with that test for the boundary. If the test fails, it undoes the
// part and enlarges parts, up to the whole word.
func (p *pairTable) mergeParts(ids []int32) int {
	var w, pair heapWord
	symbols, size := slices.Clone(ids), window
	marks := []mark{{}}
	part := make([]int32, 0, 2*window)
	for {
		m := marks[len(marks)-1]
		end := min(m.at+size, len(symbols))
		part = append(part[:0], symbols[m.at:end]...)
		count := w.merge(p, part)
		if m.at > 0 && !pair.holds(p, symbols[m.last:m.at+int(w.nodes[0].next)], m.at-m.last) {
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
		if next == m {
			size *= 2
			continue
		}
		copy(ids[m.kept:], part[:next.kept-m.kept])
		marks = append(marks, next)
	}
}

// holds reports whether the symbols of two pieces, the first with cut symbols,
// merge to two pieces split there.
func (w *heapWord) holds(p *pairTable, symbols []int32, cut int) bool {
	w.copied = append(w.copied[:0], symbols...)
	return w.merge(p, w.copied) == 2 && int(w.nodes[0].next) == cut
}
