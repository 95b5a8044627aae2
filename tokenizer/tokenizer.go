// Package tokenizer turns text into token ids and back, exactly as the model's
// tokenizer.json specifies.
//
// It supports byte-level BPE, as in the Qwen, Llama-3, DeepSeek and GPT-2
// families, from tokenizer.json or from a vocabulary and its merges;
// SentencePiece's BPE over characters, as in the Llama-2, Mistral and Gemma
// families, from tokenizer.json or tokenizer.model; and the character vocabulary
// of a tokenizer_config.json with char_ords. An unknown component is an error
// that names it. Each component follows the Unicode version of its counterpart in
// Hugging Face tokenizers 0.23 (internal/ucd).
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

// A Tokenizer maps text to ids and back. It does not change once loaded and is safe for
// concurrent use.
type Tokenizer struct {
	model      model
	normal     text.Steps   // normalizer
	original   *matcher     // added tokens to find in the original text
	normalized *matcher     // added tokens to find in the normalized text
	decoder    text.Decoder // makes text of pieces; nil if the pieces are the text's bytes
	added      map[int32]addedToken
	shown      map[int32]shown  // added tokens as Decode shows them
	ids        map[string]int32 // id by content of an added token
	prefix     []int32          // ids that EncodePrompt puts before the text
	suffix     []int32          // ids that EncodePrompt puts after the text
	stops      []int32          // result of StopIDs
	size       int              // 1 + the largest id
	longest    int              // number of bytes of the longest token
	files      []string         // result of Files
}

// model encodes text that contains no added token.
type model interface {
	// Encode appends the ids of text to dst. first means that text starts the input.
	Encode(b *budget.Budget, dst []int32, text string, first bool) []int32
	// Piece returns the bytes of an id, and whether Decode omits it. ok is false if no piece
	// has the id.
	Piece(id int32) (text string, special, ok bool)
	// ID returns the id of a piece as the vocabulary spells it.
	ID(piece string) (int32, bool)
	// Size returns 1 + the largest id.
	Size() int
	// Unknown returns the id for unknown text, or -1 if there is none.
	Unknown() int32
}

// shown is an added token as Decode shows it.
type shown struct {
	piece string // content, normalized if the token is
	bytes string // text that piece spells in the byte alphabet; piece if it has other characters
	skip  bool   // Decode omits the token
}

// newTokenizer combines a model with added tokens.
func newTokenizer(m model, normal text.Steps, added []addedToken) (*Tokenizer, error) {
	t := &Tokenizer{model: m, normal: normal, size: m.Size(),
		added: make(map[int32]addedToken, len(added)), shown: make(map[int32]shown, len(added)),
		ids: make(map[string]int32, len(added))}
	special := make(map[string]bool) // contents of special tokens, before normalization
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
	var original, normalized []addedToken
	for _, a := range added {
		t.added[a.ID] = a
		t.ids[a.Content] = a.ID
		t.size = max(t.size, int(a.ID)+1)
		t.longest = max(t.longest, len(a.Content))
		if a.Normalized {
			b := budget.New(len(a.Content))
			a.Content = normal.Apply(b, a.Content)
			if err := b.Err(); err != nil {
				return nil, fmt.Errorf("normalize added token %d: %w", a.ID, err)
			}
			normalized = append(normalized, a)
		} else {
			original = append(original, a)
		}
		text, ok := alpha.Decode(a.Content)
		if !ok {
			text = a.Content
		}
		t.shown[a.ID] = shown{piece: a.Content, bytes: text, skip: special[a.Content]}
	}
	t.original = newMatcher(original)
	t.normalized = newMatcher(normalized)
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

// encode appends the ids of text to dst. It splits off added tokens twice, before and after
// normalization, and encodes the parts between them.
func (t *Tokenizer) encode(dst []int32, text string) ([]int32, error) {
	b := budget.New(len(text))
	first := true // nothing has been appended yet
	token := func(id int32) {
		dst = append(dst, id)
		first = false
	}
	t.original.split(text, token, func(part string) {
		t.normalized.split(t.normal.Apply(b, part), token, func(part string) {
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
// ids that end within a character give U+FFFD. Like tokenizers for all BPE models, Decode
// ignores clean_up_tokenization_spaces.
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

// Bytes returns the bytes that id adds inside a text. They may be only a part of a character. Unlike
// Decode, Bytes does not omit special tokens of byte-level models.
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

// Longest returns a length in bytes above which a text has more than the given number of
// tokens, unless the normalizer removes almost all of it. So a caller can reject such a text
// without encoding it.
func (t *Tokenizer) Longest(tokens int) int { return minLongest + 4*tokens*t.longest }

// minLongest is the minimum of Longest: encoding so few bytes is always cheap enough.
const minLongest = 1 << 20

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

// Files returns the names of the tokenizer's files, relative to its folder. Code that saves
// the model should copy these files too.
func (t *Tokenizer) Files() []string { return slices.Clone(t.files) }
