package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/text"
)

// newMetaspace parses a Metaspace component, which may be a pre-tokenizer or a decoder.
func newMetaspace(c *component) (*split.Metaspace, error) {
	m := &split.Metaspace{Replacement: c.Replacement, Scheme: c.Scheme}
	switch {
	case m.Scheme == "" && c.AddPrefixSpace != nil && !*c.AddPrefixSpace:
		m.Scheme = "never"
	case m.Scheme == "":
		m.Scheme = "always"
	case m.Scheme != "always" && m.Scheme != "first" && m.Scheme != "never":
		return nil, fmt.Errorf("step Metaspace: prepend_scheme %q is not supported, expected always, first or never",
			m.Scheme)
	}
	if utf8.RuneCountInString(m.Replacement) != 1 {
		return nil, fmt.Errorf("step Metaspace: replacement %q, expected one character", m.Replacement)
	}
	if c.Split == nil || *c.Split {
		m.Cut = &split.Pattern{Find: split.Literal(m.Replacement), Behavior: split.MergedWithNext}
	}
	return m, nil
}

// newDecoder returns the decoder of a model whose tokens consist of characters, not bytes. Without c, it
// joins tokens with spaces.
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
		return text.Decoder{text.Metaspace(m.Replacement, m.Scheme != "never")}, nil
	}
	// ByteLevel, which the error lists, is handled by checkDecoder.
	return nil, fmt.Errorf("decoder %q is not supported, expected Replace, ByteFallback, Fuse, Strip, Metaspace, "+
		"ByteLevel or a Sequence of them", c.Type)
}

// replace returns a step that replaces each match of find with replacement.
func replace(find split.Finder, replacement string) text.Step {
	return text.Replace(func(b *budget.Budget, s string) [][2]int {
		found, _ := find.Matches(b, nil, s, 0, math.MaxInt)
		return found
	}, replacement)
}

// newReplace returns the step of a Replace component; what names its use for errors.
func newReplace(what string, c *component) (text.Step, error) {
	find, err := c.Pattern.finder()
	if err != nil {
		return nil, fmt.Errorf("%s Replace: %w", what, err)
	}
	return replace(find, c.Content), nil
}
