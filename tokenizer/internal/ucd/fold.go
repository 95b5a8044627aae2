package ucd

import "slices"

// Folder knows which characters (?i) takes for each other, one for one.
type Folder struct {
	orbits map[rune][]rune // the characters that differ only in case, by each of them
}

// NewFolder returns a Folder.
func NewFolder() *Folder {
	byLeast := make(map[rune][]rune)
	for c, least := range mapping("fold") {
		byLeast[least] = append(byLeast[least], c)
	}
	f := &Folder{make(map[rune][]rune, 2*len(byLeast))}
	for least, orbit := range byLeast {
		orbit = append(orbit, least)
		for _, c := range orbit {
			f.orbits[c] = orbit
		}
	}
	return f
}

// Fold adds the characters that (?i) takes for those of tidy spans.
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
