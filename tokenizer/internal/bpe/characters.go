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
// its bytes, if the vocabulary has all of them, or else the unknown id.
//
// The unknown id is appended late: before the next known character or the next unknown
// id, or at the end. So bytes come before the unknown id of a preceding character, and do
// not end a run of fused unknowns. Hugging Face tokenizers (BPE::merge_word) does the same,
// and the ids must equal theirs.
func (m *Model) characters(dst []int32, word string) []int32 {
	pending := false // an unknown id is yet to be appended
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+n]
		i += n
		if id, ok := m.ids[char]; ok {
			if pending {
				dst = append(dst, m.unk)
				pending = false
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
		if pending && !m.fuse {
			dst = append(dst, m.unk)
		}
		pending = true
	}
	if pending {
		dst = append(dst, m.unk)
	}
	return dst
}

// hasBytes reports whether the vocabulary has a piece for each byte of a character.
func (m *Model) hasBytes(char string) bool {
	for _, b := range []byte(char) {
		if m.bytes[b] < 0 {
			return false
		}
	}
	return true
}

// boundary splits text before space marks that no merge joins with the preceding
// character. No merge crosses such a boundary, so the pieces of the parts are those of the
// text, and the parts are short enough to cache.
type boundary struct {
	joined map[rune]bool // characters that a merge may join with a space mark after them
}

// appendBoundary appends a boundary to steps if the split cannot change ids. It requires that
// the mark is a piece; that no character vanishes, so that neighbours in the text are
// neighbours in the word (Unk is set); that no merge involves Unk or the pieces of bytes,
// whose characters joined does not know; and that words are not looked up (Direct).
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
	for search := from; len(to.List) < split.Batch; {
		i := strings.Index(text[search:], SpaceMark)
		if i < 0 {
			to.List = append(to.List, text[from:])
			return len(text)
		}
		mark := search + i
		if last, _ := utf8.DecodeLastRuneInString(text[:mark]); mark > from && !b.joined[last] {
			to.List = append(to.List, text[from:mark])
			from = mark
		}
		search = mark + len(SpaceMark)
	}
	return from
}
