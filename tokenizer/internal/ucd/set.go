package ucd

import (
	"cmp"
	"slices"
	"unicode"
)

// Span is the characters from Lo to Hi, inclusive. A list of spans is tidy if the spans
// ascend and neither overlap nor touch.
type Span struct{ Lo, Hi rune }

// Set is a set of characters with fast look-up. It does not change after NewSet.
type Set struct {
	plane []uint64 // a bit for each character below planeEnd
	high  []Span   // tidy spans of characters from planeEnd on
}

// planeEnd is the end of the Basic Multilingual Plane, which has almost all characters of
// texts.
const planeEnd = 1 << 16

// NewSet returns the set of the characters of tidy spans.
func NewSet(spans []Span) *Set {
	s := &Set{plane: make([]uint64, planeEnd/64)}
	for _, r := range spans {
		for c := r.Lo; c <= min(r.Hi, planeEnd-1); c++ {
			s.plane[c>>6] |= 1 << (c & 63)
		}
		if r.Hi >= planeEnd {
			s.high = append(s.high, Span{max(r.Lo, planeEnd), r.Hi})
		}
	}
	return s
}

// Has reports whether c, a code point, is in the set.
func (s *Set) Has(c rune) bool {
	if c < planeEnd {
		return s.plane[c>>6]>>(c&63)&1 != 0
	}
	return Contains(s.high, c)
}

// Contains reports whether tidy spans contain c.
func Contains(spans []Span, c rune) bool {
	_, ok := slices.BinarySearchFunc(spans, c, func(r Span, c rune) int {
		switch {
		case r.Hi < c:
			return -1
		case r.Lo > c:
			return 1
		}
		return 0
	})
	return ok
}

// Tidy sorts spans and joins those that overlap or touch. It overwrites spans and returns a
// part of it.
func Tidy(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Lo, b.Lo) })
	out := spans[:0]
	for _, r := range spans {
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Complement returns the characters outside tidy spans.
func Complement(spans []Span) []Span {
	var out []Span
	next := rune(0)
	for _, r := range spans {
		if next < r.Lo {
			out = append(out, Span{next, r.Lo - 1})
		}
		next = r.Hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, Span{next, unicode.MaxRune})
	}
	return out
}

// Folder knows which characters the flag (?i) treats as equal. It covers only single
// characters: ß does not equal ss.
type Folder struct {
	orbits map[rune][]rune // all characters that differ only in case, by each of them
}

// NewFolder returns a Folder.
func NewFolder() *Folder {
	byFirst := make(map[rune][]rune) // by the first character of an orbit, all others
	for c, first := range mapping("fold") {
		byFirst[first] = append(byFirst[first], c)
	}
	f := &Folder{make(map[rune][]rune, 2*len(byFirst))}
	for first, orbit := range byFirst {
		orbit = append(orbit, first)
		for _, c := range orbit {
			f.orbits[c] = orbit
		}
	}
	return f
}

// Fold returns tidy spans together with the characters that differ from theirs only in case.
func (f *Folder) Fold(spans []Span) []Span {
	out := slices.Clone(spans)
	for c, orbit := range f.orbits {
		if Contains(spans, c) {
			for _, c := range orbit {
				out = append(out, Span{c, c})
			}
		}
	}
	return Tidy(out)
}
