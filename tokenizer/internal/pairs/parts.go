package pairs

import "slices"

// window is how many symbols are merged at a time: few enough for the fastest
// cache.
const window = 384

// mark is where a part of a word begins.
type mark struct {
	at   int // its first symbol
	kept int // pieces before it
	last int // the first symbol of the last of these
}

// mergeParts merges a long word part by part, with the result of merging it whole.
//
// As long as no merge crosses the ends of a segment, those within it are the ones,
// in the same order, that the segment alone would have: what is best of all is best
// of the segment. So a list of pieces is the result if the symbols of each give it
// and those of each two neighbours, merged together, give the two: the first merge
// across a boundary would be one of the two neighbours' as well. A part is
// merged with some of what follows, all but its last pieces are kept, and the next
// part begins where they end, with that test for the boundary. One that does not
// hold is taken back, and parts become larger, up to the whole word.
func (p *Table) mergeParts(ids []int32) int {
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

// holds reports whether the symbols of two pieces, the first of them of cut
// symbols, give two pieces cut there.
func (w *heapWord) holds(p *Table, symbols []int32, cut int) bool {
	w.copied = append(w.copied[:0], symbols...)
	return w.merge(p, w.copied) == 2 && int(w.nodes[0].next) == cut
}
