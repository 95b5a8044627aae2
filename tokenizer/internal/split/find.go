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
// are neither word characters nor white space.
type WordsAndSigns struct{ words, spaces *ucd.Set }

// NewWordsAndSigns returns a WordsAndSigns.
func NewWordsAndSigns() *WordsAndSigns { return &WordsAndSigns{ucd.RegexWord(), ucd.Space()} }

// Matches implements Finder.
func (w *WordsAndSigns) Matches(_ *budget.Budget, dst [][2]int, text string, _, _ int) ([][2]int, int) {
	kind := func(c rune) int {
		switch {
		case w.words.Has(c):
			return 1
		case w.spaces.Has(c):
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

// Metaspace replaces each space by a mark. Depending on its scheme it puts one
// before the text, and it may split before the marks.
type Metaspace struct {
	Replacement string
	Scheme      string // always, first or never
	Cut         *Pattern
}

func (m *Metaspace) mark(text string, first bool) string {
	text = strings.ReplaceAll(text, " ", m.Replacement)
	if (m.Scheme == "always" || m.Scheme == "first" && first) && !strings.HasPrefix(text, m.Replacement) {
		text = m.Replacement + text
	}
	return text
}

// Split implements Step.
func (m *Metaspace) Split(text string, from int, to *Pieces) int {
	if m.Cut == nil {
		to.List = append(to.List, text)
		return len(text)
	}
	return m.Cut.Split(text, from, to)
}
