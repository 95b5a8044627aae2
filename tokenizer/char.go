package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
)

// The ids that precede the characters of a character vocabulary.
const (
	charSeparator, charEnd, charPad, charUnknown, charFirst = 0, 1, 2, 3, 4
)

// chars is a vocabulary of single characters. It does not change once built.
type chars struct {
	ids    map[rune]int32
	pieces []string // by id
}

// newChars returns the tokenizer of a list of code points (char_ords). The ids from charFirst
// on follow the list. S, E, P and U name the ids before unless the list contains these
// letters.
func newChars(ords []int64) (*Tokenizer, error) {
	m := &chars{ids: map[rune]int32{'S': charSeparator, 'E': charEnd, 'P': charPad, 'U': charUnknown},
		pieces: []string{"S", "E", "P", "U"}}
	seen := make(map[rune]bool, len(ords))
	for i, ord := range ords {
		if ord < 0 || ord > utf8.MaxRune || !utf8.ValidRune(rune(ord)) {
			return nil, fmt.Errorf("char_ords[%d] is %d, expected a Unicode code point", i, ord)
		}
		c := rune(ord)
		if seen[c] {
			return nil, fmt.Errorf("char_ords[%d]: %q is listed twice", i, c)
		}
		seen[c] = true
		m.ids[c] = int32(len(m.pieces))
		m.pieces = append(m.pieces, string(c))
	}
	t, err := newTokenizer(m, nil, nil)
	if err != nil {
		return nil, err
	}
	t.suffix, t.stops = []int32{charSeparator}, []int32{charEnd}
	return t, nil
}

// Encode implements model. A byte that is not UTF-8 is unknown.
func (m *chars) Encode(_ *budget.Budget, dst []int32, text string, _ bool) []int32 {
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		id, ok := m.ids[c]
		if !ok || c == utf8.RuneError && n == 1 {
			id = charUnknown
		}
		dst = append(dst, id)
		i += n
	}
	return dst
}

// Piece implements model.
func (m *chars) Piece(id int32) (text string, special, ok bool) {
	if id < 0 || int(id) >= len(m.pieces) {
		return "", false, false
	}
	return m.pieces[id], id < charFirst, true
}

// ID implements model.
func (m *chars) ID(piece string) (int32, bool) {
	c, n := utf8.DecodeRuneInString(piece)
	if n == 0 || n < len(piece) || c == utf8.RuneError && n == 1 {
		return 0, false
	}
	id, ok := m.ids[c]
	return id, ok
}

// Size implements model.
func (m *chars) Size() int { return len(m.pieces) }

// Unknown implements model.
func (m *chars) Unknown() int32 { return charUnknown }
