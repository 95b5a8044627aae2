package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/tokenizer/internal/scan"
)

// walk takes the steps of a pre-tokenizer; it may be used again.
type walk struct {
	levels []pieces // of each step: what it made of the text that is being cut
}

// maxKeptPieces is how many pieces' memory a step keeps.
const maxKeptPieces = 1 << 12

// words takes the steps from step i on; first says that text is the beginning of
// all.
func (w *walk) words(steps []splitter, i int, text string, first bool, emit func(string)) {
	if text == "" {
		return
	}
	if i == len(steps) {
		emit(text)
		return
	}
	if s, ok := steps[i].(*metaspace); ok {
		text = s.mark(text, first)
	}
	level := &w.levels[i]
	for from := 0; from < len(text); {
		level.list = level.list[:0]
		from = steps[i].split(text, from, level)
		for _, part := range level.list {
			w.words(steps, i+1, part, first && strings.HasPrefix(text, part), emit)
			first = false
		}
	}
}

// forget lets go of the text, and reports whether what is left is small enough to
// be kept.
func (w *walk) forget() bool {
	for i := range w.levels {
		level := &w.levels[i]
		if cap(level.list) > maxKeptPieces || cap(level.found) > maxKeptPieces {
			return false
		}
		clear(level.list[:cap(level.list)])
	}
	return true
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
	case "ByteLevel":
		if c.AddPrefixSpace != nil && *c.AddPrefixSpace {
			steps = append(steps, spacePrefix{})
		}
		if c.UseRegex == nil || *c.UseRegex {
			steps = append(steps, &patternSplit{find: scan.New(scan.GPT2), behavior: isolated})
		}
		return steps, true, nil
	}
	step, err := newSplitter(c)
	return append(steps, step), end, err
}

// newSplitter returns a step that cuts characters.
func newSplitter(c *component) (splitter, error) {
	switch c.Type {
	case "Split":
		return newPatternSplit(c)
	case "Digits":
		if c.Individual {
			return &patternSplit{find: runes(unicode.IsNumber), behavior: isolated}, nil
		}
		return &patternSplit{find: runes(unicode.IsNumber), behavior: contiguous}, nil
	case "Metaspace":
		m, err := newMetaspace(c)
		if err != nil {
			return nil, fmt.Errorf("pre_tokenizer: %w", err)
		}
		return m, nil
	case "Whitespace":
		return &patternSplit{find: wordsAndSigns{}, behavior: removed, invert: true}, nil
	case "WhitespaceSplit":
		return &patternSplit{find: runes(unicode.IsSpace), behavior: removed}, nil
	case "Punctuation":
		p := &patternSplit{find: runes(isPunctuation), behavior: c.Behavior}
		if p.behavior == "" {
			p.behavior = isolated
		}
		return p, p.behavior.check(c.Type)
	case "CharDelimiterSplit":
		if c.Delimiter == "" {
			return nil, errors.New("pre_tokenizer CharDelimiterSplit: no delimiter")
		}
		return &patternSplit{find: literal(c.Delimiter), behavior: removed}, nil
	}
	return nil, fmt.Errorf("pre_tokenizer %q: not supported, expected Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, CharDelimiterSplit, ByteLevel or a Sequence of them", c.Type)
}

// check refuses a behavior that is unknown.
func (b behavior) check(step string) error {
	switch b {
	case isolated, removed, contiguous, mergedWithPrevious, mergedWithNext:
		return nil
	}
	return fmt.Errorf("pre_tokenizer %s: behavior %q: not supported, expected Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext", step, b)
}

func newPatternSplit(c *component) (*patternSplit, error) {
	if err := c.Behavior.check("Split"); err != nil {
		return nil, err
	}
	find, err := c.Pattern.finder()
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer Split: %w", err)
	}
	return &patternSplit{find: find, behavior: c.Behavior, invert: c.Invert}, nil
}

// finder finds what the pattern says.
func (p *patternFile) finder() (finder, error) {
	switch {
	case p.Regex != nil:
		find, err := newFinder(*p.Regex)
		if err != nil {
			return nil, fmt.Errorf("regular expression %q: %w", *p.Regex, err)
		}
		return find, nil
	case p.String != nil:
		return literal(*p.String), nil
	}
	return nil, errors.New("no pattern, expected a String or a Regex")
}
