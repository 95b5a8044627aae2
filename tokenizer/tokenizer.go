// Package tokenizer turns text into token ids and back, exactly as the model's
// tokenizer.json says.
//
// It supports byte-level BPE, as in the Qwen, Llama-3, DeepSeek and GPT-2
// families, from tokenizer.json or from a vocabulary and its merges;
// SentencePiece's BPE over characters, as in the Llama-2, Mistral and Gemma
// families, from tokenizer.json or tokenizer.model; and the character vocabulary
// of a tokenizer_config.json with char_ords. An unknown component is an error
// that names it, never a guess. Each component knows the Unicode version of its
// counterpart in Hugging Face tokenizers 0.23 (internal/ucd).
package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

var (
	// ErrNone reports a folder without a tokenizer that this package can read.
	ErrNone = errors.New("no tokenizer files")
	// ErrLimit reports a text on which the tokenizer's patterns or replacements take too
	// long, or that they make too large.
	ErrLimit = budget.ErrSpent
)

// A Tokenizer maps text to ids and back. It is safe for concurrent use.
type Tokenizer struct {
	model   model
	normal  text.Steps
	raw     *matcher     // added tokens found in the original text
	cooked  *matcher     // added tokens found in the normalised text
	decoder text.Decoder // of pieces; nil if pieces are the text's bytes
	added   map[int32]addedToken
	shown   map[int32]shown  // what Decode makes of added tokens
	ids     map[string]int32 // of added tokens, by content
	prefix  []int32          // ids that EncodePrompt puts before the text
	suffix  []int32          // and after it
	stops   []int32
	size    int
	longest int // bytes of a token
	files   []string
}

// model encodes text that contains no added token.
type model interface {
	Encode(b *budget.Budget, dst []int32, text string, first bool) []int32 // first: text starts the input
	Piece(id int32) (text string, special, ok bool)                        // the id's bytes
	ID(piece string) (int32, bool)
	Size() int      // 1 + the largest id
	Unknown() int32 // the id for unknown text; -1 if none
}

// shown is an added token as Decode sees it.
type shown struct {
	piece string // a normalized token is shown normalized
	bytes string // the piece in the alphabet of bytes, if it is written in it
	skip  bool
}

// newTokenizer combines a model with added tokens.
func newTokenizer(m model, normal text.Steps, added []addedToken) (*Tokenizer, error) {
	t := &Tokenizer{model: m, normal: normal, size: m.Size(),
		added: make(map[int32]addedToken, len(added)), shown: make(map[int32]shown, len(added)),
		ids: make(map[string]int32, len(added))}
	special := make(map[string]bool)
	for _, a := range added {
		if a.Special {
			special[a.Content] = true
		}
	}
	for id := range int32(m.Size()) {
		piece, _, _ := m.Piece(id)
		t.longest = max(t.longest, len(piece))
	}
	alpha := bpe.NewAlphabet()
	var raw, cooked []addedToken
	for _, a := range added {
		t.added[a.ID], t.ids[a.Content] = a, a.ID
		t.size, t.longest = max(t.size, int(a.ID)+1), max(t.longest, len(a.Content))
		if a.Normalized {
			b := budget.New(len(a.Content))
			a.Content = normal.Apply(b, a.Content)
			if err := b.Err(); err != nil {
				return nil, fmt.Errorf("normalize added token %d: %w", a.ID, err)
			}
			cooked = append(cooked, a)
		} else {
			raw = append(raw, a)
		}
		text, ok := alpha.Decode(a.Content)
		if !ok {
			text = a.Content
		}
		t.shown[a.ID] = shown{piece: a.Content, bytes: text, skip: special[a.Content]}
	}
	t.raw, t.cooked = newMatcher(raw), newMatcher(cooked)
	return t, nil
}

// Encode returns the ids of text. Added tokens in the text, including special
// ones, become their ids. Encode adds no tokens before or after the text. Bytes
// that are not UTF-8 are encoded as bytes. The error wraps ErrLimit.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(make([]int32, 0, len(text)/3+4), text)
}

// EncodePrompt returns the ids of text as the start of a sequence that the model
// continues: with the tokens that the post-processor or add_bos_token puts around
// it or, for a character vocabulary, with the separator after it. The error wraps
// ErrLimit.
func (t *Tokenizer) EncodePrompt(text string) ([]int32, error) {
	ids := make([]int32, 0, len(text)/3+4+len(t.prefix)+len(t.suffix))
	ids, err := t.encode(append(ids, t.prefix...), text)
	return append(ids, t.suffix...), err
}

func (t *Tokenizer) encode(dst []int32, text string) ([]int32, error) {
	b, first := budget.New(len(text)), true
	token := func(id int32) { dst, first = append(dst, id), false }
	t.raw.split(text, token, func(part string) {
		t.cooked.split(t.normal.Apply(b, part), token, func(part string) {
			dst = t.model.Encode(b, dst, part, first)
			first = false
		})
	})
	return dst, b.Err()
}

// Decode returns the text of ids without special tokens such as end of sequence
// or padding, like decode of Hugging Face tokenizers with skip_special_tokens.
// Added tokens that are not special, such as <think>, stay and pass through the
// decoder. Decode ignores ids outside the vocabulary. The result is valid UTF-8:
// ids that end within a character give U+FFFD. As for all BPE models,
// clean_up_tokenization_spaces has no effect.
func (t *Tokenizer) Decode(ids []int32) string {
	if t.decoder != nil {
		pieces := t.pieces(ids)
		size := 0
		for _, p := range pieces {
			size += len(p)
		}
		return lossy.String(t.decoder.Text(budget.New(size), pieces))
	}
	var b strings.Builder
	b.Grow(4 * len(ids))
	for _, id := range ids {
		if a, ok := t.shown[id]; ok {
			if !a.skip {
				b.WriteString(a.bytes)
			}
			continue
		}
		if text, special, ok := t.model.Piece(id); ok && !special {
			b.WriteString(text)
		}
	}
	return lossy.String(b.String())
}

// pieces returns the pieces of ids, without special tokens.
func (t *Tokenizer) pieces(ids []int32) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if a, ok := t.shown[id]; ok {
			if !a.skip {
				out = append(out, a.piece)
			}
		} else if piece, special, ok := t.model.Piece(id); ok && !special {
			out = append(out, piece)
		}
	}
	return out
}

// Bytes returns the bytes that id adds to a text, which may be part of a
// character.
func (t *Tokenizer) Bytes(id int32) string {
	if t.decoder == nil {
		if a, ok := t.shown[id]; ok {
			return a.bytes
		}
		text, _, _ := t.model.Piece(id)
		return text
	}
	one := t.Decode([]int32{id})
	if piece, _, _ := t.model.Piece(id); piece != one {
		if b, ok := text.ByteOf(piece); ok {
			return string([]byte{b})
		}
	}
	// Some decoders drop the space at the beginning of a text.
	return strings.TrimPrefix(t.Decode([]int32{id, id}), one)
}

// Special returns the name of a special token, such as "<|im_end|>", or "" for
// any other.
func (t *Tokenizer) Special(id int32) string {
	if a, ok := t.added[id]; ok && a.Special {
		return a.Content
	} else if ok {
		return ""
	}
	if name, special, _ := t.model.Piece(id); special {
		return name
	}
	return ""
}

// Longest returns a number of bytes above which a text surely has more than this many
// tokens, unless its normalizer removes almost all of it.
func (t *Tokenizer) Longest(tokens int) int { return leastText + 4*tokens*t.longest }

// leastText is a number of bytes that are never too many to encode.
const leastText = 1 << 20

// VocabSize returns 1 + the largest id.
func (t *Tokenizer) VocabSize() int { return t.size }

// TokenID returns the id of one piece: the content of an added token, or a piece
// as the vocabulary spells it ("Ġthe").
func (t *Tokenizer) TokenID(piece string) (int32, bool) {
	if id, ok := t.ids[piece]; ok {
		return id, true
	}
	return t.model.ID(piece)
}

// Unknown returns the id for all text that the vocabulary lacks, or -1 if there
// is none, as in byte-level BPE.
func (t *Tokenizer) Unknown() int32 { return t.model.Unknown() }

// StopIDs returns the ids that end a response: the eos_token of the tokenizer's
// configuration. It is empty if the folder names none.
func (t *Tokenizer) StopIDs() []int32 { return slices.Clone(t.stops) }

// Files returns the names of the tokenizer's files in the folder. Copy these to a
// folder in which the model is saved.
func (t *Tokenizer) Files() []string { return slices.Clone(t.files) }
