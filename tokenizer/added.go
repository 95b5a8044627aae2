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
	LStrip     bool   `json:"lstrip"`      // also matches the white space before it
	RStrip     bool   `json:"rstrip"`      // and after it
	Normalized bool   `json:"normalized"`  // is matched in the normalised text
	Special    bool   `json:"special"`     // Decode omits it
}

// matcher finds added tokens: the leftmost first, and the longest at each place.
type matcher struct {
	first  [256]bool // bytes that a token starts with
	edges  map[uint64]int32
	tokens []*addedToken // by trie node; nil if no token ends there
	words  *ucd.Set
	spaces *ucd.Set
}

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
			edge := uint64(node)<<8 | uint64(a.Content[i])
			next, ok := m.edges[edge]
			if !ok {
				next = int32(len(m.tokens))
				m.edges[edge] = next
				m.tokens = append(m.tokens, nil)
			}
			node = next
		}
		m.tokens[node] = &a
	}
	return m
}

// at returns the longest token that text starts with, or nil.
func (m *matcher) at(text string) *addedToken {
	var found *addedToken
	node := int32(0)
	for i := range len(text) {
		next, ok := m.edges[uint64(node)<<8|uint64(text[i])]
		if !ok {
			break
		}
		if node = next; m.tokens[node] != nil {
			found = m.tokens[node]
		}
	}
	return found
}

// split calls token for each added token in text and rest for the text between
// them, in order.
func (m *matcher) split(text string, token func(int32), rest func(string)) {
	if len(m.edges) == 0 && text != "" {
		rest(text)
		return
	}
	done := 0 // end of the text already passed to rest or token
	for i := 0; i < len(text); {
		if !m.first[text[i]] {
			i++
			continue
		}
		a := m.at(text[i:])
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
			rest(text[done:start])
		}
		if start < stop { // else the token before it took this one as white space
			token(a.ID)
		}
		done = stop
	}
	if done < len(text) {
		rest(text[done:])
	}
}

// inWord reports whether a word character is next to text[start:stop].
func (m *matcher) inWord(text string, start, stop int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[stop:])
	return m.words.Has(before) || m.words.Has(after)
}
