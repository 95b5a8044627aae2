package scan

import (
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// set is a set of characters.
type set struct {
	low [utf8.RuneSelf]bool
	all *ucd.Set
}

func newSet(spans []ucd.Span) *set {
	s := &set{all: ucd.NewSet(spans)}
	for c := range s.low {
		s.low[c] = s.all.Has(rune(c))
	}
	return s
}

// run returns the end and the count of at most limit characters of the set from i
// on.
func (s *set) run(text string, i, limit int) (end, count int) {
	for count < limit && i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if !s.low[b] {
				break
			}
			i++
		} else {
			c, n := utf8.DecodeRuneInString(text[i:])
			if !s.all.Has(c) {
				break
			}
			i += n
		}
		count++
	}
	return i, count
}
