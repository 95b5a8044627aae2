// Package bpe encodes words by byte-pair encoding, over bytes or over characters.
package bpe

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
)

// MaxHoles bounds the ids without a piece, and so the memory that one wild id in
// a file can demand.
const MaxHoles = 1 << 20

// Model is byte-pair encoding: a word starts as the ids of its bytes or
// characters, and the pair of lowest rank, leftmost first, is merged until none
// is left.
//
// A Model does not change after New and is safe for concurrent use.
type Model struct {
	split  []split.Step     // steps of the pre-tokenizer, in order
	ids    map[string]int32 // id by the bytes of a piece
	other  map[string]int32 // id by spelling, for pieces with characters outside the byte alphabet
	pieces []string         // bytes by id; the spelling for a piece in other
	holes  map[int32]bool   // ids below len(pieces) without a piece
	bytes  [256]int32       // id by byte; -1 if the vocabulary lacks the byte
	chars  bool             // words start as characters, and unknown characters as bytes
	frozen map[string]int32 // id by word, for words that are not merged
	pairs  *pairTable
	unk    int32 // id for unknown bytes or characters; -1 drops them
	fuse   bool  // consecutive unknowns become one unk
	direct bool  // a word that is a piece becomes that piece without merges
	alpha  *Alphabet
	cache  *wordCache
	walks  sync.Pool // *split.Walk values
}

// Config describes a model in the terms of tokenizer.json.
type Config struct {
	Vocab    map[string]int32 // id by piece
	Merges   [][2]string      // pairs of pieces whose concatenation is a piece
	Unk      string           // piece for unknown text (unk_token); "" for none
	Fuse     bool             // fuse_unk: consecutive unknowns become one Unk
	Direct   bool             // ignore_merges: a word that is a piece becomes that piece
	Fallback bool             // byte_fallback: unknown characters become pieces such as <0x0A>
	Chars    bool             // words consist of characters, not bytes
	Ranks    []int32          // rank by index in Merges; nil means the index
	Frozen   map[string]int32 // id by word, for words that are not merged
	Split    []split.Step     // steps of the pre-tokenizer
}

// New returns the model that c describes. The model keeps c's maps and slices; the caller
// must not change them.
func New(c Config) (*Model, error) {
	m := &Model{split: c.Split, fuse: c.Fuse, direct: c.Direct, unk: -1, chars: c.Chars, frozen: c.Frozen,
		alpha: NewAlphabet(), cache: newWordCache()}
	if err := m.setVocab(c.Vocab); err != nil {
		return nil, err
	}
	if err := m.setBytes(c); err != nil {
		return nil, err
	}
	if c.Unk != "" {
		id, ok := c.Vocab[c.Unk]
		if !ok {
			return nil, fmt.Errorf("model.unk_token %q is not in the vocabulary", c.Unk)
		}
		m.unk = id
	}
	m.pairs = newPairTable(len(c.Merges))
	for i, pair := range c.Merges {
		a, okA := c.Vocab[pair[0]]
		b, okB := c.Vocab[pair[1]]
		ab, okAB := c.Vocab[pair[0]+pair[1]]
		if !okA || !okB || !okAB {
			return nil, fmt.Errorf("merge %d %q %q: expected both parts and their merge in the vocabulary", i,
				pair[0], pair[1])
		}
		rank := int32(i)
		if c.Ranks != nil {
			rank = c.Ranks[i]
		}
		m.pairs.put(a, b, rank, ab)
	}
	if c.Chars {
		m.split = appendBoundary(m.split, c)
	}
	return m, nil
}

// setBytes sets the ids of the bytes: of <0x0A> and the like in a character vocabulary
// with byte_fallback, else of the characters of the byte alphabet.
func (m *Model) setBytes(c Config) error {
	for b := range m.bytes {
		m.bytes[b] = -1
		piece := m.alpha.Spell(byte(b))
		if c.Chars {
			piece = fmt.Sprintf("<0x%02X>", b)
		}
		if id, ok := c.Vocab[piece]; ok && (c.Fallback || !c.Chars) {
			m.bytes[b] = id
		} else if c.Fallback && !c.Chars {
			return fmt.Errorf("model.byte_fallback is not supported for a vocabulary without byte 0x%02X", b)
		}
	}
	return nil
}

// setVocab sets the pieces and their ids.
func (m *Model) setVocab(vocab map[string]int32) error {
	top := int32(-1)
	for piece, id := range vocab {
		if id < 0 || int(id) >= len(vocab)+MaxHoles {
			return fmt.Errorf("vocabulary piece %q has id %d, expected 0 to %d", piece, id, len(vocab)+MaxHoles-1)
		}
		top = max(top, id)
	}
	m.pieces = make([]string, top+1)
	m.ids = make(map[string]int32, len(vocab))
	m.other = make(map[string]int32)
	seen := make([]bool, top+1)
	for piece, id := range vocab {
		if seen[id] {
			return fmt.Errorf("vocabulary id %d belongs to several pieces, including %q", id, piece)
		}
		seen[id] = true
		if m.chars {
			m.pieces[id], m.ids[piece] = piece, id
		} else if text, ok := m.alpha.Decode(piece); ok {
			m.pieces[id], m.ids[text] = text, id
		} else {
			m.pieces[id], m.other[piece] = piece, id
		}
	}
	m.holes = make(map[int32]bool)
	for id, ok := range seen {
		if !ok {
			m.holes[int32(id)] = true
		}
	}
	return nil
}

// Size returns 1 + the largest id.
func (m *Model) Size() int { return len(m.pieces) }

// Unknown returns the id for unknown text, or -1 if there is none.
func (m *Model) Unknown() int32 { return m.unk }

// Piece returns the bytes of an id. special is always false: only added tokens are special.
func (m *Model) Piece(id int32) (text string, special, ok bool) {
	if id < 0 || int(id) >= len(m.pieces) || m.holes[id] {
		return "", false, false
	}
	return m.pieces[id], false, true
}

// ID returns the id of a piece as the vocabulary spells it.
func (m *Model) ID(piece string) (int32, bool) {
	if m.chars {
		id, ok := m.ids[piece]
		return id, ok
	}
	if text, ok := m.alpha.Decode(piece); ok {
		id, ok := m.ids[text]
		return id, ok
	}
	id, ok := m.other[piece]
	return id, ok
}

// Encode appends the ids of text to dst. first means that text starts the input. The ids are
// incomplete if b is spent.
func (m *Model) Encode(b *budget.Budget, dst []int32, text string, first bool) []int32 {
	w, ok := m.walks.Get().(*split.Walk)
	if !ok {
		w = split.NewWalk(m.split)
	}
	w.Words(b, text, first, func(word string) { dst = m.word(dst, word) })
	if w.Forget() {
		m.walks.Put(w)
	}
	return dst
}

// word appends the ids of one word, from the cache if possible.
func (m *Model) word(dst []int32, word string) []int32 {
	if word == "" {
		return dst
	}
	if m.direct {
		if id, ok := m.ids[word]; ok {
			return append(dst, id)
		}
	}
	if len(word) == 1 && m.bytes[word[0]] >= 0 && !m.chars {
		return append(dst, m.bytes[word[0]])
	}
	if id, ok := m.frozen[word]; ok {
		return append(dst, id)
	}
	if len(word) > maxCachedWord {
		return m.merge(dst, word)
	}
	slot, tag := m.cache.slot(word)
	if w := slot.word.Load(); w != nil && w.text == word {
		return append(dst, w.ids...)
	}
	n := len(dst)
	dst = m.merge(dst, word)
	if slot.repeats(tag) {
		slot.word.Store(&cachedWord{strings.Clone(word), slices.Clone(dst[n:])}) // word is a part of a large text
	}
	return dst
}

// symbols appends the initial ids of a word.
func (m *Model) symbols(dst []int32, word string) []int32 {
	if m.chars {
		return m.characters(dst, word)
	}
	fused := false // the last byte is unknown, and unk stands for the unknown bytes after it too
	for i := range len(word) {
		id := m.bytes[word[i]]
		switch {
		case id >= 0:
			dst = append(dst, id)
			fused = false
		case m.unk >= 0 && !fused:
			dst = append(dst, m.unk)
			fused = m.fuse
		}
	}
	return dst
}

// merge appends the ids of a word without the cache.
func (m *Model) merge(dst []int32, word string) []int32 {
	n := len(dst)
	dst = m.symbols(dst, word)
	return dst[:n+m.pairs.merge(dst[n:])]
}
