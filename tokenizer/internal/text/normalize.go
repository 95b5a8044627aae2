// Package text changes text before a tokenizer's model encodes it, and the pieces
// of text that its ids decode to.
package text

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// longRun is the number of consecutive non-starters from which part calls long. It is far
// below the 30 from which package norm inserts characters (its stream-safe limit).
const longRun = 8

// normalizer brings text into a Unicode form. It leaves characters alone that are newer than
// the Unicode version of Hugging Face tokenizers, and nothing composes or moves across them.
// It is safe for concurrent use.
type normalizer struct {
	norm.Form
	newer *ucd.Set             // characters to leave alone
	pairs func() map[pair]rune // composites, computed on first use
}

func newNormalizer(form norm.Form) *normalizer {
	return &normalizer{form, ucd.Newer(), sync.OnceValue(composites)}
}

// apply normalizes text. Text that is normal in the Unicode version of package norm is also
// normal in the older version of tokenizers.
func (n *normalizer) apply(_ *budget.Budget, text string) string {
	if n.IsNormalString(text) {
		return text
	}
	from := 0
	var out strings.Builder
	out.Grow(len(text))
	for i, c := range text {
		if c >= utf8.RuneSelf && n.newer.Has(c) {
			end := i + utf8.RuneLen(c)
			out.WriteString(n.part(text[from:i]))
			out.WriteString(text[i:end])
			from = end
		}
	}
	out.WriteString(n.part(text[from:]))
	return out.String()
}

// part normalizes text without newer characters. It is Form.String, except that Form.String
// inserts U+034F into long runs of combining marks (its stream-safe limit), which tokenizers
// does not.
func (n *normalizer) part(text string) string {
	run := 0
	for i, c := range text {
		if c < utf8.RuneSelf || n.PropertiesString(text[i:]).BoundaryBefore() {
			run = 0
		} else if run++; run >= longRun {
			return n.long(text)
		}
	}
	return n.String(text)
}

// char is a character and its canonical combining class.
type char struct {
	rune  rune
	class uint8
}

// long normalizes runs of any length as Unicode's UAX 15 specifies: it decomposes, orders by
// combining class, and composes. Bytes that are not UTF-8 stay, and nothing composes across
// them.
func (n *normalizer) long(text string) string {
	out := make([]byte, 0, len(text))
	var chars []char
	for from := 0; from < len(text); {
		var end int
		chars, end = decompose(chars[:0], n.Form, text, from)
		order(chars)
		if n.Form == norm.NFC || n.Form == norm.NFKC {
			chars = compose(chars, n.pairs())
		}
		for _, c := range chars {
			out = utf8.AppendRune(out, c.rune)
		}
		if from = end; from < len(text) {
			out = append(out, text[from])
			from++
		}
	}
	return string(out)
}

// decompose appends the decompositions of text's characters from i up to a byte
// that is not UTF-8 or the end, and returns that position.
func decompose(dst []char, form norm.Form, text string, i int) ([]char, int) {
	decomposition := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decomposition = norm.NFKD
	}
	for i < len(text) {
		c, size := utf8.DecodeRuneInString(text[i:])
		if c == utf8.RuneError && size == 1 {
			break
		}
		p := decomposition.PropertiesString(text[i:])
		i += size
		parts := p.Decomposition()
		switch {
		case c >= hangulFirst && c < hangulFirst+hangulCount:
			dst = appendHangul(dst, c-hangulFirst)
		case parts == nil:
			dst = append(dst, char{c, p.CCC()})
		}
		for len(parts) > 0 {
			c, size := utf8.DecodeRune(parts)
			dst = append(dst, char{c, norm.NFD.Properties(parts).CCC()})
			parts = parts[size:]
		}
	}
	return dst, i
}

// order sorts each run of characters with a nonzero class by class.
func order(chars []char) {
	var spare []char
	for i := 0; i < len(chars); {
		j := i
		for j < len(chars) && chars[j].class != 0 {
			j++
		}
		spare = sortByClass(chars[i:j], spare)
		i = max(j, i+1)
	}
}

// sortByClass sorts a run stably, with a counting sort if it is long. spare is scratch space;
// sortByClass returns it, possibly enlarged, for the next call.
func sortByClass(run, spare []char) []char {
	if len(run) <= 2*longRun {
		slices.SortStableFunc(run, func(a, b char) int { return int(a.class) - int(b.class) })
		return spare
	}
	var starts [257]int
	for _, c := range run {
		starts[c.class+1]++
	}
	for i := range 256 {
		starts[i+1] += starts[i]
	}
	spare = append(spare[:0], run...)
	for _, c := range spare {
		run[starts[c.class]] = c
		starts[c.class]++
	}
	return spare
}

// compose joins characters with the last starter before them, in place, unless a character
// between the two blocks this: one whose class is not lower. It returns the shorter slice.
func compose(chars []char, pairs map[pair]rune) []char {
	out := chars[:0]
	starter := -1    // index in out of the last starter
	last := uint8(0) // class of the last character of out
	for _, c := range chars {
		adjacent := len(out)-1 == starter
		if starter >= 0 && (adjacent || last < c.class) {
			if joined, ok := join(pairs, out[starter].rune, c.rune); ok {
				out[starter].rune = joined
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
		last = c.class
	}
	return out
}

// A Hangul syllable consists of a leading letter, a vowel and possibly a trailing letter. Its
// code point is computed from theirs (The Unicode Standard, 3.12).
const (
	hangulFirst    = 0xac00 // first syllable
	hangulLeading  = 0x1100 // first leading letter
	hangulVowel    = 0x1161 // first vowel
	hangulTrailing = 0x11a7 // one before the first trailing letter: 0 means none
	leadingCount   = 19
	vowelCount     = 21
	trailingCount  = 28
	hangulCount    = leadingCount * vowelCount * trailingCount
)

// appendHangul appends the letters of a syllable, given as the offset from hangulFirst.
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

// composites returns the primary composites except Hangul syllables, by the two characters
// that they decompose into.
func composites() map[pair]rune {
	all := make(map[pair]rune, 1024)
	for c := rune(utf8.RuneSelf); c <= lastComposite; c++ {
		var buf [utf8.UTFMax]byte
		text := utf8.AppendRune(buf[:0], c)
		parts := norm.NFD.Properties(text).Decomposition()
		if parts == nil || !norm.NFC.IsNormal(text) {
			continue // no decomposition, or excluded from composition
		}
		second, size := utf8.DecodeLastRune(parts)
		first := norm.NFC.Bytes(parts[:len(parts)-size])
		if c1, size := utf8.DecodeRune(first); size == len(first) {
			all[pair{c1, second}] = c
		}
	}
	return all
}

// join returns the primary composite of two characters, or false if there is none.
func join(pairs map[pair]rune, first, second rune) (rune, bool) {
	vowel, trailing := second-hangulVowel, second-hangulTrailing
	switch {
	case vowel >= 0 && vowel < vowelCount:
		leading := first - hangulLeading
		return hangulFirst + (leading*vowelCount+vowel)*trailingCount, leading >= 0 && leading < leadingCount
	case trailing > 0 && trailing < trailingCount:
		syllable := first - hangulFirst // only one without a trailing letter takes one
		return first + trailing, syllable >= 0 && syllable < hangulCount && syllable%trailingCount == 0
	}
	c, ok := pairs[pair{first, second}]
	return c, ok
}
