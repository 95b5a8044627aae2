package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

// spaceMark is what SentencePiece writes for a space.
const spaceMark = "▁"

// characters appends the ids of a word's characters: those of its bytes where the
// vocabulary has these instead, or else the unknown one.
func (m *bpe) characters(dst []int32, word string) []int32 {
	unknown := false // one waits for what is next
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

func (m *bpe) hasBytes(char string) bool {
	for _, b := range []byte(char) {
		if m.bytes[b] < 0 {
			return false
		}
	}
	return true
}

// boundary cuts text before the space marks that no merge joins with what is
// before them. What is between is merged by itself with the same result, and is
// short enough to be remembered.
type boundary struct{ joined map[rune]bool }

// appendBoundary adds the boundary where cutting changes nothing: a mark must be
// a piece, no character may vanish, what stands for an unknown one must not be
// merged, and words not be looked up whole.
func appendBoundary(steps []splitter, c bpeConfig) []splitter {
	if _, ok := c.vocab[spaceMark]; !ok || c.direct || c.unk == "" {
		return steps
	}
	b := boundary{map[rune]bool{}}
	for _, pair := range c.merges {
		if _, ok := text.ByteOf(pair[0]); ok || pair[0] == c.unk || pair[1] == c.unk {
			return steps
		}
		if strings.HasPrefix(pair[1], spaceMark) {
			last, _ := utf8.DecodeLastRuneInString(pair[0])
			b.joined[last] = true
		}
	}
	return append(steps, b)
}

func (b boundary) split(text string, from int, to *pieces) int {
	for at := from; len(to.list) < batch; {
		i := strings.Index(text[at:], spaceMark)
		if i < 0 {
			to.list = append(to.list, text[from:])
			return len(text)
		}
		i += at
		if last, _ := utf8.DecodeLastRuneInString(text[:i]); i > from && !b.joined[last] {
			to.list = append(to.list, text[from:i])
			from = i
		}
		at = i + len(spaceMark)
	}
	return from
}

// metaspace writes a mark for each space and, by its scheme, one before text, and
// may cut before the marks.
type metaspace struct {
	replacement string
	scheme      string // always, first or never
	cut         *patternSplit
}

func newMetaspace(c *component) (*metaspace, error) {
	m := &metaspace{replacement: c.Replacement, scheme: c.Scheme}
	switch {
	case m.scheme == "" && c.AddPrefixSpace != nil && !*c.AddPrefixSpace:
		m.scheme = "never"
	case m.scheme == "":
		m.scheme = "always"
	case m.scheme != "always" && m.scheme != "first" && m.scheme != "never":
		return nil, fmt.Errorf("step Metaspace: prepend_scheme %q: not supported, expected always, first or never", m.scheme)
	}
	if utf8.RuneCountInString(m.replacement) != 1 {
		return nil, fmt.Errorf("step Metaspace: replacement %q, expected one character", m.replacement)
	}
	if c.Split == nil || *c.Split {
		m.cut = &patternSplit{find: literal(m.replacement), behavior: mergedWithNext}
	}
	return m, nil
}

func (m *metaspace) mark(text string, first bool) string {
	text = strings.ReplaceAll(text, " ", m.replacement)
	if (m.scheme == "always" || m.scheme == "first" && first) && !strings.HasPrefix(text, m.replacement) {
		text = m.replacement + text
	}
	return text
}

func (m *metaspace) split(text string, from int, to *pieces) int {
	if m.cut == nil {
		to.list = append(to.list, text)
		return len(text)
	}
	return m.cut.split(text, from, to)
}

// runes finds single characters of a kind.
type runes func(rune) bool

func (r runes) Matches(dst [][2]int, text string, from, limit int) ([][2]int, int) {
	for from < len(text) && len(dst) < limit {
		c, n := utf8.DecodeRuneInString(text[from:])
		if r(c) {
			dst = append(dst, [2]int{from, from + n})
		}
		from += n
	}
	return dst, from
}

// wordsAndSigns finds runs of word characters, and runs of what is neither that
// nor white space, all of them.
type wordsAndSigns struct{}

func (wordsAndSigns) Matches(dst [][2]int, text string, _, _ int) ([][2]int, int) {
	kind := func(c rune) int {
		switch {
		case isWord(c):
			return 1
		case unicode.IsSpace(c):
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

// isPunctuation is what the Punctuation step cuts at: ASCII's signs and Unicode's
// punctuation.
func isPunctuation(c rune) bool {
	return c > ' ' && c < 0x7f && !isWord(c) || c == '_' || unicode.IsPunct(c)
}

// newDecoder returns the decoder of a character model.
func newDecoder(c *component) (text.Decoder, error) {
	if c == nil {
		return text.Decoder{text.Spaced}, nil
	}
	switch c.Type {
	case "Sequence":
		all := text.Decoder{}
		for _, part := range c.Decoders {
			d, err := newDecoder(&part)
			if err != nil {
				return nil, err
			}
			all = append(all, d...)
		}
		return all, nil
	case "Replace":
		step, err := newReplace("decoder", c)
		return text.Decoder{text.Each(step)}, err
	case "ByteFallback":
		return text.Decoder{text.BytePieces}, nil
	case "Fuse":
		return text.Decoder{text.Fuse}, nil
	case "Strip":
		if utf8.RuneCountInString(c.Content) != 1 {
			return nil, fmt.Errorf("decoder Strip: content %q, expected one character", c.Content)
		}
		return text.Decoder{text.StripChar(c.Content, c.Start, c.Stop)}, nil
	case "Metaspace":
		m, err := newMetaspace(c)
		if err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
		return text.Decoder{text.Metaspace(m.replacement, m.scheme != "never")}, nil
	}
	return nil, fmt.Errorf("decoder %q: not supported, expected Replace, ByteFallback, Fuse, Strip, Metaspace, ByteLevel or a Sequence of them", c.Type)
}

// replace puts with in the place of the matches.
func replace(find finder, with string) text.Step {
	return text.Replace(func(s string) [][2]int {
		found, _ := find.Matches(nil, s, 0, math.MaxInt)
		return found
	}, with)
}

func newReplace(what string, c *component) (text.Step, error) {
	find, err := c.Pattern.finder()
	if err != nil {
		return nil, fmt.Errorf("%s Replace: %w", what, err)
	}
	return replace(find, c.Content), nil
}
