package tokenizer

import (
	"errors"
	"fmt"

	"github.com/easyrl/easyrl/tokenizer/internal/split"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// appendSplit appends the steps of c, which may be nil. byteLevel says whether a ByteLevel
// step came before; the result says whether it or c has one, which must be the last.
func appendSplit(steps []split.Step, c *component, byteLevel bool) ([]split.Step, bool, error) {
	if c == nil {
		return steps, byteLevel, nil
	}
	if byteLevel && c.Type != "Sequence" {
		return nil, byteLevel, fmt.Errorf("pre_tokenizer %q after ByteLevel is not supported, expected ByteLevel last",
			c.Type)
	}
	switch c.Type {
	case "Sequence":
		var err error
		for _, part := range c.PreTokenizers {
			if steps, byteLevel, err = appendSplit(steps, &part, byteLevel); err != nil {
				return nil, byteLevel, err
			}
		}
		return steps, byteLevel, nil
	case "ByteLevel":
		if c.AddPrefixSpace != nil && *c.AddPrefixSpace {
			steps = append(steps, split.SpacePrefix{})
		}
		if c.UseRegex == nil || *c.UseRegex {
			find, err := split.Compile(split.GPT2)
			if err != nil {
				return nil, byteLevel, err
			}
			steps = append(steps, &split.Pattern{Find: find, Behavior: split.Isolated})
		}
		return steps, true, nil
	}
	step, err := newSplitter(c)
	return append(steps, step), byteLevel, err
}

// newSplitter returns the step of a component other than Sequence and ByteLevel.
func newSplitter(c *component) (split.Step, error) {
	switch c.Type {
	case "Split":
		return newPatternSplit(c)
	case "Digits":
		if c.Individual {
			return &split.Pattern{Find: split.Runes(ucd.Numeric().Has), Behavior: split.Isolated}, nil
		}
		return &split.Pattern{Find: split.Runes(ucd.Numeric().Has), Behavior: split.Contiguous}, nil
	case "Metaspace":
		m, err := newMetaspace(c)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		return m, nil
	case "Whitespace":
		return &split.Pattern{Find: split.NewWordsAndSigns(), Behavior: split.Removed, Invert: true}, nil
	case "WhitespaceSplit":
		return &split.Pattern{Find: split.Runes(ucd.Space().Has), Behavior: split.Removed}, nil
	case "Punctuation":
		p := &split.Pattern{Find: split.Runes(ucd.Punctuation().Has), Behavior: c.Behavior}
		if p.Behavior == "" {
			p.Behavior = split.Isolated
		}
		return p, checkBehavior(c.Type, p.Behavior)
	case "CharDelimiterSplit":
		if c.Delimiter == "" {
			return nil, errors.New("pre_tokenizer CharDelimiterSplit has no delimiter")
		}
		return &split.Pattern{Find: split.Literal(c.Delimiter), Behavior: split.Removed}, nil
	}
	return nil, fmt.Errorf("pre_tokenizer %q is not supported, expected Split, Digits, Metaspace, Whitespace, "+
		"WhitespaceSplit, Punctuation, CharDelimiterSplit, ByteLevel or a Sequence of them", c.Type)
}

// checkBehavior returns an error for an unknown behavior.
func checkBehavior(step string, b split.Behavior) error {
	switch b {
	case split.Isolated, split.Removed, split.Contiguous, split.MergedWithPrevious, split.MergedWithNext:
		return nil
	}
	return fmt.Errorf("pre_tokenizer %s: behavior %q is not supported, expected Isolated, Removed, Contiguous, "+
		"MergedWithPrevious or MergedWithNext", step, b)
}

// newPatternSplit returns the step of a Split component.
func newPatternSplit(c *component) (*split.Pattern, error) {
	if err := checkBehavior("Split", c.Behavior); err != nil {
		return nil, err
	}
	find, err := c.Pattern.finder()
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer Split: %w", err)
	}
	return &split.Pattern{Find: find, Behavior: c.Behavior, Invert: c.Invert}, nil
}

// finder returns a finder of the pattern.
func (p *patternFile) finder() (split.Finder, error) {
	switch {
	case p.Regex != nil:
		find, err := split.Compile(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("regular expression %q: %w", *p.Regex, err)
		}
		return find, nil
	case p.String != nil:
		return split.Literal(*p.String), nil
	}
	return nil, errors.New("no pattern, expected a String or a Regex")
}
