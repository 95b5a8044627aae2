package bpe

import (
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

// SpaceMark is SentencePiece's replacement for a space.
const SpaceMark = "▁"

// characters appends the ids of a word's characters. An unknown character becomes
// its bytes, if the vocabulary has them, or else the unknown id.
func (m *Model) characters(dst []int32, word string) []int32 {
	unknown := false // an unknown id is pending
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+n]
		i += n
		if id, ok := m.whole[char]; ok {
			if unknown {
				dst, unknown = append(dst, m.unk), false
			}
			dst = append(dst, id)
			continue
		}
		if m.hasBytes(char) {
			for _, b := range []byte(char) {
				dst = append(dst, m.bytes[b])
			}
			continue
		}
		if m.unk < 0 {
			continue
		}
		if unknown && !m.fuse {
			dst = append(dst, m.unk)
		}
		unknown = true
	}
	if unknown {
		dst = append(dst, m.unk)
	}
	return dst
}

func (m *Model) hasBytes(char string) bool {
	for _, b := range []byte(char) {
		if m.bytes[b] < 0 {
			return false
		}
	}
	return true
}

// boundary splits text before space marks that no merge joins with the preceding
// character. The text between merges to the same result alone, and is short
// enough to cache.
type boundary struct{ joined map[rune]bool }

// appendBoundary adds the boundary if splitting changes nothing: the mark must be
// a piece, no character may vanish, the unknown token must not be merged, and
// words must not be looked up whole.
func appendBoundary(steps []split.Step, c Config) []split.Step {
	if _, ok := c.Vocab[SpaceMark]; !ok || c.Direct || c.Unk == "" {
		return steps
	}
	b := boundary{map[rune]bool{}}
	for _, pair := range c.Merges {
		if _, ok := text.ByteOf(pair[0]); ok || pair[0] == c.Unk || pair[1] == c.Unk {
			return steps
		}
		if strings.HasPrefix(pair[1], SpaceMark) {
			last, _ := utf8.DecodeLastRuneInString(pair[0])
			b.joined[last] = true
		}
	}
	return append(steps, b)
}

// Split implements split.Step.
func (b boundary) Split(text string, from int, to *split.Pieces) int {
	for at := from; len(to.List) < split.Batch; {
		i := strings.Index(text[at:], SpaceMark)
		if i < 0 {
			to.List = append(to.List, text[from:])
			return len(text)
		}
		i += at
		if last, _ := utf8.DecodeLastRuneInString(text[:i]); i > from && !b.joined[last] {
			to.List = append(to.List, text[from:i])
			from = i
		}
		at = i + len(SpaceMark)
	}
	return from
}
