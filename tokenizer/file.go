package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
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

// component is a normalizer, pre-tokenizer, post-processor or decoder: the
// fields of all kinds that are known.
type component struct {
	Type          string      `json:"type"`
	Normalizers   []component `json:"normalizers"`   // of a Sequence
	PreTokenizers []component `json:"pretokenizers"` // the same
	Processors    []component `json:"processors"`
	Decoders      []component `json:"decoders"`

	AddPrefixSpace bool  `json:"add_prefix_space"` // ByteLevel
	UseRegex       *bool `json:"use_regex"`        // the same; true where it is absent

	Pattern    patternFile `json:"pattern"` // Split
	Behavior   behavior    `json:"behavior"`
	Invert     bool        `json:"invert"`
	Individual bool        `json:"individual_digits"` // Digits

	Single        []templatePiece          `json:"single"` // TemplateProcessing
	SpecialTokens map[string]templateToken `json:"special_tokens"`
}

type patternFile struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

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

// mergeList is the merges, each "a b" or ["a", "b"].
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*m = make(mergeList, len(lines))
		for i, line := range lines {
			var ok bool
			if (*m)[i], ok = parseMerge(line); !ok {
				return fmt.Errorf("merge %d %q: expected two pieces with one space between", i, line)
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
			return fmt.Errorf("merge %d: %d pieces, expected 2", i, len(pair))
		}
		(*m)[i] = [2]string(pair)
	}
	return nil
}

func parseMerge(line string) (pair [2]string, ok bool) {
	a, b, ok := strings.Cut(line, " ")
	return [2]string{a, b}, ok && a != "" && b != "" && !strings.Contains(b, " ")
}

// parseFile reads a tokenizer.json; more are the added tokens that the
// tokenizer's configuration has.
func parseFile(data []byte, config *configFile) (*Tokenizer, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Model.Type != "BPE" && (f.Model.Type != "" || f.Model.Merges == nil) {
		return nil, fmt.Errorf("model type %q: not supported, expected BPE", f.Model.Type)
	}
	normal, err := newNormalizer(f.Normalizer)
	if err != nil {
		return nil, err
	}
	c, err := f.Model.config()
	if err != nil {
		return nil, err
	}
	if c.split, err = newSplit(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := checkDecoder(f.Decoder); err != nil {
		return nil, err
	}
	m, err := newBPE(c)
	if err != nil {
		return nil, err
	}
	added, err := mergeAdded(c.vocab, f.AddedTokens, config)
	if err != nil {
		return nil, err
	}
	t := newTokenizer(m, normal, added)
	if err := t.setTemplate(f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

func (f *modelFile) config() (bpeConfig, error) {
	c := bpeConfig{merges: f.Merges, unk: f.Unk, fuse: f.FuseUnk, direct: f.IgnoreMerges, fallback: f.Fallback}
	switch {
	case f.Dropout != 0:
		return c, fmt.Errorf("model.dropout %g: not supported, expected null", f.Dropout)
	case f.Prefix != "":
		return c, fmt.Errorf("model.continuing_subword_prefix %q: not supported, expected none", f.Prefix)
	case f.Suffix != "":
		return c, fmt.Errorf("model.end_of_word_suffix %q: not supported, expected none", f.Suffix)
	}
	if err := json.Unmarshal(f.Vocab, &c.vocab); err != nil {
		return c, fmt.Errorf("model.vocab: expected an object of piece to id: %w", err)
	}
	if len(c.vocab) == 0 {
		return c, errors.New("model.vocab: empty, expected an object of piece to id")
	}
	return c, nil
}

func newNormalizer(c *component) (normalizer, error) {
	if c == nil {
		return nil, nil
	}
	switch c.Type {
	case "NFC":
		return normalizer{norm.NFC}, nil
	case "NFD":
		return normalizer{norm.NFD}, nil
	case "NFKC":
		return normalizer{norm.NFKC}, nil
	case "NFKD":
		return normalizer{norm.NFKD}, nil
	case "Sequence":
		var all normalizer
		for _, part := range c.Normalizers {
			n, err := newNormalizer(&part)
			if err != nil {
				return nil, err
			}
			all = append(all, n...)
		}
		return all, nil
	}
	return nil, fmt.Errorf("normalizer %q: not supported, expected NFC, NFD, NFKC, NFKD or a Sequence of them", c.Type)
}

// newSplit returns the steps of a pre-tokenizer, the last of which must be
// ByteLevel: it ends the part that sees characters.
func newSplit(c *component) ([]splitter, error) {
	steps, end, err := appendSplit(nil, c, false)
	if err == nil && !end {
		err = fmt.Errorf("pre_tokenizer: no ByteLevel in it: not supported, expected byte-level BPE")
	}
	return steps, err
}

// appendSplit adds the steps of c; end says that ByteLevel was among them.
func appendSplit(steps []splitter, c *component, end bool) ([]splitter, bool, error) {
	if c == nil {
		return steps, end, nil
	}
	if end && c.Type != "Sequence" {
		return nil, end, fmt.Errorf("pre_tokenizer %q after ByteLevel: not supported, expected ByteLevel to be the last", c.Type)
	}
	switch c.Type {
	case "Sequence":
		var err error
		for _, part := range c.PreTokenizers {
			if steps, end, err = appendSplit(steps, &part, end); err != nil {
				return nil, end, err
			}
		}
		return steps, end, nil
	case "Split":
		s, err := newPatternSplit(c)
		return append(steps, s), end, err
	case "Digits":
		b := contiguous
		if c.Individual {
			b = isolated
		}
		return append(steps, &patternSplit{find: numerals{}, behavior: b}), end, nil
	case "ByteLevel":
		if c.AddPrefixSpace {
			steps = append(steps, spacePrefix{})
		}
		if c.UseRegex == nil || *c.UseRegex {
			steps = append(steps, &patternSplit{find: newScanner(gpt2Pattern), behavior: isolated})
		}
		return steps, true, nil
	}
	return nil, end, fmt.Errorf("pre_tokenizer %q: not supported, expected Split, Digits, ByteLevel or a Sequence of them", c.Type)
}

func newPatternSplit(c *component) (*patternSplit, error) {
	switch c.Behavior {
	case isolated, removed, contiguous, mergedWithPrevious, mergedWithNext:
	default:
		return nil, fmt.Errorf("pre_tokenizer Split: behavior %q: not supported, expected Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext", c.Behavior)
	}
	p := &patternSplit{behavior: c.Behavior, invert: c.Invert}
	switch {
	case c.Pattern.Regex != nil:
		find, err := newFinder(*c.Pattern.Regex)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer Split: regular expression %q: %w", *c.Pattern.Regex, err)
		}
		p.find = find
	case c.Pattern.String != nil:
		p.find = literal(*c.Pattern.String)
	default:
		return nil, fmt.Errorf("pre_tokenizer Split: no pattern, expected a String or a Regex")
	}
	return p, nil
}

func checkDecoder(c *component) error {
	if c == nil || c.Type == "ByteLevel" || c.Type == "Fuse" {
		return nil
	}
	if c.Type != "Sequence" {
		return fmt.Errorf("decoder %q: not supported, expected ByteLevel", c.Type)
	}
	for _, part := range c.Decoders {
		if err := checkDecoder(&part); err != nil {
			return err
		}
	}
	return nil
}

// setTemplate sets what a post-processor puts around a single text.
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
	return fmt.Errorf("post_processor %q: not supported, expected TemplateProcessing, ByteLevel or a Sequence of them", c.Type)
}

func (t *Tokenizer) applyTemplate(c *component) error {
	var before, after []int32
	seen := false
	for i, p := range c.Single {
		switch {
		case p.SpecialToken != nil:
			token, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("post_processor TemplateProcessing: token %q: not among its special_tokens", p.SpecialToken.ID)
			}
			for _, id := range token.IDs {
				if id < 0 || int(id) >= t.size {
					return fmt.Errorf("post_processor TemplateProcessing: token %q: id %d, expected 0 to %d", p.SpecialToken.ID, id, t.size-1)
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
			return fmt.Errorf("post_processor TemplateProcessing: single[%d]: expected a SpecialToken or the one Sequence", i)
		}
	}
	if !seen {
		return fmt.Errorf("post_processor TemplateProcessing: no Sequence in single, expected the text's place")
	}
	t.prefix, t.suffix = append(before, t.prefix...), append(t.suffix, after...)
	return nil
}
