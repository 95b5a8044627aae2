package text

import (
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Hangul syllables are computed (The Unicode Standard, 3.12): of a leading, a vowel
// and possibly a trailing letter.
const (
	hangulFirst    = 0xac00
	hangulLeading  = 0x1100
	hangulVowel    = 0x1161
	hangulTrailing = 0x11a7 // one before the first
	leadingCount   = 19
	vowelCount     = 21
	trailingCount  = 28
	hangulCount    = leadingCount * vowelCount * trailingCount
)

// appendHangul appends the letters of a syllable, counted from the first.
func appendHangul(dst []char, syllable rune) []char {
	dst = append(dst, char{rune: hangulLeading + syllable/(vowelCount*trailingCount)},
		char{rune: hangulVowel + syllable/trailingCount%vowelCount})
	if t := syllable % trailingCount; t > 0 {
		dst = append(dst, char{rune: hangulTrailing + t})
	}
	return dst
}

// pair is two consecutive characters.
type pair struct{ first, second rune }

// lastComposite is the end of the planes that have composites.
const lastComposite = 0x1ffff

// composites returns the primary composites without those of Hangul.
func composites() map[pair]rune {
	all := make(map[pair]rune, 1024)
	for c := rune(utf8.RuneSelf); c <= lastComposite; c++ {
		var buf [utf8.UTFMax]byte
		text := utf8.AppendRune(buf[:0], c)
		parts := norm.NFD.Properties(text).Decomposition()
		if parts == nil || !norm.NFC.IsNormal(text) {
			continue // excluded, or a single character
		}
		second, size := utf8.DecodeLastRune(parts)
		first := norm.NFC.Bytes(parts[:len(parts)-size])
		if c1, size := utf8.DecodeRune(first); size == len(first) {
			all[pair{c1, second}] = c
		}
	}
	return all
}

// join returns the primary composite of two characters.
func join(pairs map[pair]rune, first, second rune) (rune, bool) {
	v, t := second-hangulVowel, second-hangulTrailing
	switch {
	case v >= 0 && v < vowelCount:
		l := first - hangulLeading
		return hangulFirst + (l*vowelCount+v)*trailingCount, l >= 0 && l < leadingCount
	case t > 0 && t < trailingCount:
		s := first - hangulFirst
		return first + t, s >= 0 && s < hangulCount && s%trailingCount == 0
	}
	c, ok := pairs[pair{first, second}]
	return c, ok
}
