package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/internal/filetype"
	"github.com/easyrl/easyrl/tokenizer/internal/bpe"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

// tokenizerFile is a tokenizer.json.
type tokenizerFile struct {
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *component   `json:"normalizer"`
	PreTokenizer  *component   `json:"pre_tokenizer"`
	PostProcessor *component   `json:"post_processor"`
	Decoder       *component   `json:"decoder"`
	Model         modelFile    `json:"model"`
}

type modelFile struct {
	Type         string          `json:"type"`
	Dropout      float64         `json:"dropout"`
	Unk          string          `json:"unk_token"`
	Prefix       string          `json:"continuing_subword_prefix"`
	Suffix       string          `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"`
	Fallback     bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"` // its form depends on Type
	Merges       mergeList       `json:"merges"`
}

// component is a normalizer, pre-tokenizer, post-processor or decoder. It has the
// fields of all known kinds.
type component struct {
	Type string `json:"type"`
	// Sequence, by its use:
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	// ByteLevel:
	AddPrefixSpace *bool `json:"add_prefix_space"` // also an old form of Metaspace's Scheme
	UseRegex       *bool `json:"use_regex"`        // the default is true

	// Split, Replace (Pattern) and Punctuation (Behavior):
	Pattern  patternFile    `json:"pattern"`
	Behavior split.Behavior `json:"behavior"`
	Invert   bool           `json:"invert"`

	// Digits:
	Individual bool `json:"individual_digits"`

	// Metaspace:
	Replacement string `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"` // the default is true

	// CharDelimiterSplit:
	Delimiter string `json:"delimiter"`

	// Prepend:
	Prepend string `json:"prepend"`

	// Replace (Content), and Strip as a decoder:
	Content string `json:"content"`
	Start   int    `json:"start"`
	Stop    int    `json:"stop"`

	// Strip as a normalizer; the defaults are true:
	StripLeft  *bool `json:"strip_left"`
	StripRight *bool `json:"strip_right"`

	// TemplateProcessing:
	Single        []templatePiece          `json:"single"`
	SpecialTokens map[string]templateToken `json:"special_tokens"`
}

// patternFile is a pattern: exactly one field is set.
type patternFile struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// templatePiece is an item of a template: a special token, or the text (Sequence).
type templatePiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

type templateToken struct {
	IDs []int32 `json:"ids"`
}

// mergeList is a list of merges, each "a b" or ["a", "b"].
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*m = make(mergeList, len(lines))
		for i, line := range lines {
			var ok bool
			if (*m)[i], ok = parseMerge(line); !ok {
				return fmt.Errorf("merge %d %q: expected two pieces separated by one space", i, line)
			}
		}
		return nil
	}
	var pairs [][]string
	if err := json.Unmarshal(b, &pairs); err != nil {
		return fmt.Errorf("merges: expected a list of \"a b\" or of [\"a\", \"b\"]: %w", err)
	}
	*m = make(mergeList, len(pairs))
	for i, pair := range pairs {
		if len(pair) != 2 {
			return fmt.Errorf("merge %d has %d pieces, expected 2", i, len(pair))
		}
		(*m)[i] = [2]string(pair)
	}
	return nil
}

// parseMerge parses "a b".
func parseMerge(line string) (pair [2]string, ok bool) {
	a, b, ok := strings.Cut(line, " ")
	return [2]string{a, b}, ok && a != "" && b != "" && !strings.Contains(b, " ")
}

// parseFile parses a tokenizer.json and adds the tokens of the tokenizer's
// configuration.
func parseFile(data []byte, config *configFile) (*Tokenizer, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, cmp.Or(filetype.NotJSON(data), err)
	}
	isBPE := f.Model.Type == "BPE" || f.Model.Type == "" && f.Model.Merges != nil // old files have no type
	if !isBPE {
		return nil, fmt.Errorf("model type %q is not supported, expected BPE", f.Model.Type)
	}
	normal, err := newNormalizer(f.Normalizer)
	if err != nil {
		return nil, err
	}
	c, err := f.Model.config()
	if err != nil {
		return nil, err
	}
	decoder, err := f.setSplit(&c)
	if err != nil {
		return nil, err
	}
	m, err := bpe.New(c)
	if err != nil {
		return nil, err
	}
	added, err := mergeAdded(c.Vocab, f.AddedTokens, config)
	if err != nil {
		return nil, err
	}
	t, err := newTokenizer(m, normal, added)
	if err != nil {
		return nil, err
	}
	t.decoder = decoder
	if err := t.setTemplate(f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

// has reports whether c is a component of a type or a Sequence that contains one.
func (c *component) has(kind string) bool {
	if c == nil {
		return false
	}
	part := func(c component) bool { return c.has(kind) }
	return c.Type == kind || slices.ContainsFunc(c.PreTokenizers, part) || slices.ContainsFunc(c.Decoders, part)
}

// setSplit sets the pre-tokenizer of c, and whether words consist of characters or bytes. It
// returns the decoder, which is nil for bytes.
func (f *tokenizerFile) setSplit(c *bpe.Config) (text.Decoder, error) {
	steps, byteLevel, err := appendSplit(nil, f.PreTokenizer, false)
	if err != nil {
		return nil, err
	}
	c.Split = steps
	c.Chars = !byteLevel && !f.Decoder.has("ByteLevel")
	if c.Chars {
		return newDecoder(f.Decoder)
	}
	if !byteLevel {
		return nil, fmt.Errorf("pre_tokenizer has no ByteLevel but the decoder does, expected both or neither")
	}
	return nil, checkDecoder(f.Decoder)
}

// config returns the model's part of bpe.Config. It rejects settings that are not supported.
func (f *modelFile) config() (bpe.Config, error) {
	c := bpe.Config{Merges: f.Merges, Unk: f.Unk, Fuse: f.FuseUnk, Direct: f.IgnoreMerges, Fallback: f.Fallback}
	switch {
	case f.Dropout != 0:
		return c, fmt.Errorf("model.dropout %g is not supported, expected null", f.Dropout)
	case f.Prefix != "":
		return c, fmt.Errorf("model.continuing_subword_prefix %q is not supported, expected none", f.Prefix)
	case f.Suffix != "":
		return c, fmt.Errorf("model.end_of_word_suffix %q is not supported, expected none", f.Suffix)
	}
	if err := json.Unmarshal(f.Vocab, &c.Vocab); err != nil {
		return c, fmt.Errorf("model.vocab: expected an object that maps pieces to ids: %w", err)
	}
	if len(c.Vocab) == 0 {
		return c, errors.New("model.vocab is empty, expected an object that maps pieces to ids")
	}
	return c, nil
}

// newNormalizer returns the steps of a normalizer; c may be nil.
func newNormalizer(c *component) (text.Steps, error) {
	if c == nil {
		return nil, nil
	}
	one := func(step text.Step) (text.Steps, error) { return text.Steps{step}, nil }
	switch c.Type {
	case "NFC":
		return one(text.Form(norm.NFC))
	case "NFD":
		return one(text.Form(norm.NFD))
	case "NFKC":
		return one(text.Form(norm.NFKC))
	case "NFKD":
		return one(text.Form(norm.NFKD))
	case "Lowercase":
		return one(text.Lowercase())
	case "StripAccents":
		return one(text.StripAccents())
	case "Strip":
		return one(text.Strip(c.StripLeft == nil || *c.StripLeft, c.StripRight == nil || *c.StripRight))
	case "Prepend":
		return one(text.Prepend(c.Prepend))
	case "Replace":
		step, err := newReplace("normalizer", c)
		return text.Steps{step}, err
	case "Sequence":
		var all text.Steps
		for _, part := range c.Normalizers {
			n, err := newNormalizer(&part)
			if err != nil {
				return nil, err
			}
			all = append(all, n...)
		}
		return all, nil
	}
	return nil, fmt.Errorf("normalizer %q is not supported, expected NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "+
		"Strip, Prepend, Replace or a Sequence of them", c.Type)
}

// checkDecoder returns an error if the decoder of a byte-level model does more than join
// bytes.
func checkDecoder(c *component) error {
	if c == nil || c.Type == "ByteLevel" || c.Type == "Fuse" {
		return nil
	}
	if c.Type != "Sequence" {
		return fmt.Errorf("decoder %q is not supported, expected ByteLevel", c.Type)
	}
	for _, part := range c.Decoders {
		if err := checkDecoder(&part); err != nil {
			return err
		}
	}
	return nil
}

// setTemplate sets the tokens that a post-processor puts around a single text.
func (t *Tokenizer) setTemplate(c *component) error {
	if c == nil || c.Type == "ByteLevel" { // ByteLevel moves offsets only
		return nil
	}
	switch c.Type {
	case "Sequence":
		for _, part := range c.Processors {
			if err := t.setTemplate(&part); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		return t.applyTemplate(c)
	}
	return fmt.Errorf(
		"post_processor %q is not supported, expected TemplateProcessing, ByteLevel or a Sequence of them", c.Type)
}

// applyTemplate adds the special tokens of a template to t's prefix and suffix.
func (t *Tokenizer) applyTemplate(c *component) error {
	var before, after []int32
	seen := false // the place of the text has been found
	for i, p := range c.Single {
		switch {
		case p.SpecialToken != nil:
			token, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("post_processor TemplateProcessing: token %q is not in special_tokens",
					p.SpecialToken.ID)
			}
			for _, id := range token.IDs {
				if id < 0 || int(id) >= t.size {
					return fmt.Errorf("post_processor TemplateProcessing: token %q has id %d, expected 0 to %d",
						p.SpecialToken.ID, id, t.size-1)
				}
			}
			if seen {
				after = append(after, token.IDs...)
			} else {
				before = append(before, token.IDs...)
			}
		case p.Sequence != nil && !seen:
			seen = true
		default:
			return fmt.Errorf(
				"post_processor TemplateProcessing: single[%d]: expected a SpecialToken or exactly one Sequence", i)
		}
	}
	if !seen {
		return fmt.Errorf("post_processor TemplateProcessing: single has no Sequence, expected one for the text")
	}
	t.prefix, t.suffix = append(before, t.prefix...), append(t.suffix, after...)
	return nil
}
