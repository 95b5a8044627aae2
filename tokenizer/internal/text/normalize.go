// Package text changes text before a tokenizer's model sees it, and the pieces of
// text that its ids stand for.
package text

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// longRun is how many characters that join what is before them make a run long.
const longRun = 8

// Normalize is form.String without its stream-safe limit: that inserts U+034F
// into long runs of combining marks, which tokenizers do not.
func Normalize(form norm.Form, text string) string {
	if form.IsNormalString(text) {
		return text
	}
	run := 0
	for i, c := range text {
		if c < utf8.RuneSelf || form.PropertiesString(text[i:]).BoundaryBefore() {
			run = 0
		} else if run++; run >= longRun {
			return normalizeLong(form, text)
		}
	}
	return form.String(text)
}

// normalizeLong handles runs of any length by the letter of Unicode's UAX 15:
// decompose, order by combining class, compose. Bytes that are not UTF-8 stay.
func normalizeLong(form norm.Form, text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for text != "" {
		n := 0
		for n < len(text) {
			c, size := utf8.DecodeRuneInString(text[n:])
			if c == utf8.RuneError && size == 1 {
				break
			}
			n += size
		}
		for _, c := range normalizeRunes(form, text[:n]) {
			b.WriteRune(c)
		}
		if n < len(text) {
			b.WriteByte(text[n])
			n++
		}
		text = text[n:]
	}
	return b.String()
}

func normalizeRunes(form norm.Form, text string) []rune {
	decompose := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decompose = norm.NFKD
	}
	var runes []rune
	for _, c := range text {
		runes = append(runes, []rune(decompose.String(string(c)))...)
	}
	for i := 0; i < len(runes); {
		j := i
		for j < len(runes) && combining(runes[j]) != 0 {
			j++
		}
		slices.SortStableFunc(runes[i:j], func(a, b rune) int { return int(combining(a)) - int(combining(b)) })
		i = max(j, i+1)
	}
	if form == norm.NFD || form == norm.NFKD {
		return runes
	}
	return compose(runes)
}

// compose joins each mark with the last starter before it unless a mark between
// them blocks it.
func compose(runes []rune) []rune {
	out := runes[:0]
	starter, last := -1, uint8(0) // last: combining class of the end of out
	for _, c := range runes {
		class := combining(c)
		if starter >= 0 && (len(out)-1 == starter || last < class) {
			if joined, ok := pair(out[starter], c); ok {
				out[starter] = joined
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		out = append(out, c)
		last = class
	}
	return out
}

// pair returns the primary composite of two characters.
func pair(a, b rune) (rune, bool) {
	s := norm.NFC.String(string([]rune{a, b}))
	c, n := utf8.DecodeRuneInString(s)
	return c, n == len(s)
}

func combining(c rune) uint8 { return norm.NFD.PropertiesString(string(c)).CCC() }
