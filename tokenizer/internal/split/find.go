package split

import (
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// Runes finds single characters that satisfy a predicate.
type Runes func(rune) bool

// Matches implements Finder.
func (r Runes) Matches(_ *budget.Budget, dst [][2]int, text string, from, limit int) ([][2]int, int) {
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
// are neither word characters nor white space: \w+|[^\w\s]+.
type WordsAndSigns struct{ words, spaces *ucd.Set }

// NewWordsAndSigns returns a WordsAndSigns.
func NewWordsAndSigns() *WordsAndSigns { return &WordsAndSigns{ucd.RegexWord(), ucd.Space()} }

// Matches implements Finder; it returns all matches of the text at once. Finders that do so
// always start at 0, because the first call reaches the end.
func (w *WordsAndSigns) Matches(_ *budget.Budget, dst [][2]int, text string, _, _ int) ([][2]int, int) {
	const space, word, sign = 0, 1, 2
	kindOf := func(c rune) int {
		switch {
		case w.words.Has(c):
			return word
		case w.spaces.Has(c):
			return space
		}
		return sign
	}
	start, kind := 0, space // of the current run
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if next := kindOf(c); next != kind {
			if kind != space {
				dst = append(dst, [2]int{start, i})
			}
			start, kind = i, next
		}
		i += n
	}
	if kind != space {
		dst = append(dst, [2]int{start, len(text)})
	}
	return dst, len(text)
}

// Metaspace replaces each space by a mark. Depending on its scheme it puts one
// before the text, and it may split before the marks.
type Metaspace struct {
	Replacement string   // mark, one character
	Scheme      string   // when a mark precedes the text: always, first (of the input) or never
	Cut         *Pattern // splits before marks; nil to keep the text in one piece
}

// mark returns text with marks. Walk calls it before Split, because only Walk knows whether
// text starts the input.
func (m *Metaspace) mark(text string, first bool) string {
	text = strings.ReplaceAll(text, " ", m.Replacement)
	prefix := m.Scheme == "always" || m.Scheme == "first" && first
	if prefix && !strings.HasPrefix(text, m.Replacement) {
		text = m.Replacement + text
	}
	return text
}

// Split implements Step for text with marks.
func (m *Metaspace) Split(text string, from int, to *Pieces) int {
	if m.Cut == nil {
		to.List = append(to.List, text)
		return len(text)
	}
	return m.Cut.Split(text, from, to)
}
