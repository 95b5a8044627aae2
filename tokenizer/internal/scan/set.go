package scan

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"
)

// span is the characters from lo to hi.
type span struct{ lo, hi rune }

// set is a set of characters.
type set struct {
	low   [utf8.RuneSelf]bool
	plane []uint64 // a bit for each character below planeEnd
	high  []span   // ascending, from planeEnd on
}

const planeEnd = 1 << 16

func newSet(spans []span) *set {
	s := &set{plane: make([]uint64, planeEnd/64)}
	for _, r := range spans {
		for c := r.lo; c <= min(r.hi, planeEnd-1); c++ {
			s.plane[c>>6] |= 1 << (c & 63)
		}
		if r.hi >= planeEnd {
			s.high = append(s.high, span{max(r.lo, planeEnd), r.hi})
		}
	}
	for c := range s.low {
		s.low[c] = s.plane[c>>6]>>(c&63)&1 != 0
	}
	return s
}

func (s *set) has(c rune) bool {
	if c < planeEnd {
		return s.plane[c>>6]>>(c&63)&1 != 0
	}
	_, ok := slices.BinarySearchFunc(s.high, c, func(r span, c rune) int {
		switch {
		case r.hi < c:
			return -1
		case r.lo > c:
			return 1
		}
		return 0
	})
	return ok
}

// run returns the end and the count of at most limit characters of the set from i
// on.
func (s *set) run(text string, i, limit int) (end, count int) {
	for count < limit && i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if !s.low[b] {
				break
			}
			i++
		} else {
			c, n := utf8.DecodeRuneInString(text[i:])
			if !s.has(c) {
				break
			}
			i += n
		}
		count++
	}
	return i, count
}

// tidy sorts spans and joins adjacent ones.
func tidy(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	out := spans[:0]
	for _, r := range spans {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// complement returns the characters outside tidy spans.
func complement(spans []span) []span {
	var out []span
	next := rune(0)
	for _, r := range spans {
		if next < r.lo {
			out = append(out, span{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return out
}

// tableSpans returns the characters of a table.
func tableSpans(table *unicode.RangeTable) []span {
	var out []span
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, span{lo, hi})
			return
		}
		for c := lo; c <= hi; c += stride {
			out = append(out, span{c, c})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return tidy(out)
}

// folded adds the characters that differ only in case.
func folded(spans []span) []span {
	out := slices.Clone(spans)
	for _, r := range spans {
		for c := r.lo; c <= r.hi; c++ {
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, span{f, f})
			}
		}
	}
	return tidy(out)
}
