package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// addedToken is a token that is matched before the model sees the text.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // matches only between non-word characters
	LStrip     bool   `json:"lstrip"`      // a match includes the white space before the token
	RStrip     bool   `json:"rstrip"`      // a match includes the white space after the token
	Normalized bool   `json:"normalized"`  // is matched in the normalized text
	Special    bool   `json:"special"`     // Decode omits it
}

// matcher finds added tokens: the leftmost first, and the longest at each place. It is a
// trie over bytes, whose root is node 0.
type matcher struct {
	first  [256]bool        // bytes that a token starts with
	edges  map[uint64]int32 // child node by edgeKey
	tokens []*addedToken    // by node; nil if no token ends there
	words  *ucd.Set         // word characters
	spaces *ucd.Set         // white space
}

// edgeKey returns the key in edges of the edge that leaves a node with a byte.
func edgeKey(node int32, b byte) uint64 { return uint64(node)<<8 | uint64(b) }

// newMatcher returns a matcher of tokens. It ignores empty ones.
func newMatcher(tokens []addedToken) *matcher {
	m := &matcher{edges: make(map[uint64]int32), tokens: []*addedToken{nil}, words: ucd.RegexWord(),
		spaces: ucd.Space()}
	for _, a := range tokens {
		if a.Content == "" {
			continue
		}
		m.first[a.Content[0]] = true
		node := int32(0)
		for i := range len(a.Content) {
			key := edgeKey(node, a.Content[i])
			next, ok := m.edges[key]
			if !ok {
				next = int32(len(m.tokens))
				m.edges[key] = next
				m.tokens = append(m.tokens, nil)
			}
			node = next
		}
		m.tokens[node] = &a
	}
	return m
}

// longest returns the longest token that text starts with, or nil.
func (m *matcher) longest(text string) *addedToken {
	var found *addedToken
	node := int32(0)
	for i := range len(text) {
		next, ok := m.edges[edgeKey(node, text[i])]
		if !ok {
			break
		}
		node = next
		if m.tokens[node] != nil {
			found = m.tokens[node]
		}
	}
	return found
}

// split calls token with the id of each added token in text, and between with the non-empty
// texts between them, in order.
func (m *matcher) split(text string, token func(int32), between func(string)) {
	if len(m.edges) == 0 && text != "" {
		between(text)
		return
	}
	done := 0 // end of the text already passed to between or token
	for i := 0; i < len(text); {
		if !m.first[text[i]] {
			i++
			continue
		}
		a := m.longest(text[i:])
		if a == nil {
			i++
			continue
		}
		start, stop := i, i+len(a.Content)
		i = stop
		if a.SingleWord && m.inWord(text, start, stop) {
			continue
		}
		if a.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], m.spaces.Has)))
		}
		if a.RStrip {
			stop = len(text) - len(strings.TrimLeftFunc(text[stop:], m.spaces.Has))
		}
		if done < start {
			between(text[done:start])
		}
		if start < stop { // else this token is white space that the previous one included
			token(a.ID)
		}
		done = stop
	}
	if done < len(text) {
		between(text[done:])
	}
}

// inWord reports whether a word character is next to text[start:stop].
func (m *matcher) inWord(text string, start, stop int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[stop:])
	return m.words.Has(before) || m.words.Has(after)
}
