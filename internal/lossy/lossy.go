// Package lossy converts arbitrary bytes to valid UTF-8.
package lossy

import (
	"strings"
	"unicode/utf8"
)

// String replaces each ill-formed sequence by one U+FFFD, as Python's
// bytes.decode("utf-8", errors="replace") and Rust's String::from_utf8_lossy do.
// A sequence is the longest beginning of a character, or else one byte (The
// Unicode Standard, 3.9, "Substitution of Maximal Subparts").
func String(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 8)
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if c == utf8.RuneError && n == 1 {
			n = maximalSubpart(text[i:])
		}
		b.WriteRune(c)
		i += n
	}
	return b.String()
}

// maximalSubpart returns the length of the longest beginning of a character at the start of text,
// or 1 if there is none. text must not begin with a complete character.
func maximalSubpart(text string) int {
	n := 1
	for n < min(len(text), utf8.UTFMax) && !utf8.FullRuneInString(text[:n]) && text[n]&0xc0 == 0x80 {
		n++
		if utf8.FullRuneInString(text[:n]) { // a full rune here is an error: the new byte cannot follow
			return n - 1
		}
	}
	return n
}
