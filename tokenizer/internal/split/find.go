package split

import (
	"unicode"
	"unicode/utf8"
)

// Runes finds single characters that satisfy a predicate.
type Runes func(rune) bool

// Matches implements Finder.
func (r Runes) Matches(dst [][2]int, text string, from, limit int) ([][2]int, int) {
	for from < len(text) && len(dst) < limit {
		c, n := utf8.DecodeRuneInString(text[from:])
		if r(c) {
			dst = append(dst, [2]int{from, from + n})
		}
		from += n
	}
	return dst, from
}

// WordsAndSigns finds all runs of word characters, and runs of characters that
// are neither word characters nor white space.
type WordsAndSigns struct{}

// Matches implements Finder.
func (WordsAndSigns) Matches(dst [][2]int, text string, _, _ int) ([][2]int, int) {
	kind := func(c rune) int {
		switch {
		case IsWord(c):
			return 1
		case unicode.IsSpace(c):
			return 0
		}
		return 2
	}
	from, was := 0, 0
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if k := kind(c); k != was {
			if was != 0 {
				dst = append(dst, [2]int{from, i})
			}
			from, was = i, k
		}
		i += n
	}
	if was != 0 {
		dst = append(dst, [2]int{from, len(text)})
	}
	return dst, len(text)
}

// IsPunctuation reports whether the Punctuation step splits at c: ASCII signs and
// Unicode punctuation.
func IsPunctuation(c rune) bool {
	return c > ' ' && c < 0x7f && !IsWord(c) || c == '_' || unicode.IsPunct(c)
}

// IsWord reports whether c matches \w of Unicode's regular expressions.
func IsWord(c rune) bool {
	return unicode.In(c, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Other_Alphabetic, unicode.Pc, unicode.Join_Control)
}
