package py

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Runes returns the number of characters of s.
func Runes(s string) int { return utf8.RuneCountInString(s) }

// RuneLen returns the number of bytes of the first rune of s, which must not be empty.
func RuneLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// IsSpace implements str.isspace for one character.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// asciiDigits replaces decimal digits of other scripts.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || !unicode.Is(unicode.Nd, r) {
			return r
		}
		n := rune(0) // Unicode has a script's ten digits in a row
		for unicode.Is(unicode.Nd, r-1) && n < 9 {
			r, n = r-1, n+1
		}
		return '0' + n
	}, s)
}
