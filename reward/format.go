package reward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FormatConfig is what kind "format" can be told.
type FormatConfig struct {
	// Tags that a response has to have, each once and in this order, as in
	// <think>…</think><answer>…</answer>.
	Tags []string
	// Start lets nothing but white space stand before the first tag.
	Start bool
}

// DefaultFormat is <think>…</think> at the start.
func DefaultFormat() FormatConfig { return FormatConfig{Tags: []string{"think"}, Start: true} }

type format struct{ cfg FormatConfig }

// NewFormat is the reward of kind "format": 1 where the tags are there as they
// have to be, else 0. Each tag alone, wherever it is, is a part.
func NewFormat(cfg FormatConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new format reward: %w", err)
	}
	return format{cfg}, nil
}

// validate reports a fault, beginning with its key.
func (c FormatConfig) validate() error {
	if len(c.Tags) == 0 {
		return errors.New("tags is empty, expected one or more")
	}
	for i, tag := range c.Tags {
		if tag == "" || strings.ContainsAny(tag, "<>/ \n") || slices.Contains(c.Tags[:i], tag) {
			return fmt.Errorf("tags has %q, expected different names without brackets", tag)
		}
	}
	return nil
}

func (f format) Score(ctx context.Context, in Input) (Score, error) {
	score := Score{Parts: map[string]float64{}}
	formed, rest := true, in.Text
	for i, tag := range f.cfg.Tags {
		opening, closing := "<"+tag+">", "</"+tag+">"
		once := strings.Count(in.Text, opening) == 1 && strings.Count(in.Text, closing) == 1 &&
			strings.Index(in.Text, opening) < strings.Index(in.Text, closing)
		score.Parts[tag] = number(once)
		if i == 0 && f.cfg.Start {
			once = once && strings.HasPrefix(strings.TrimLeft(in.Text, " \t\r\n"), opening)
		}
		_, after, found := strings.Cut(rest, opening)
		if found {
			_, rest, found = strings.Cut(after, closing)
		}
		formed = formed && once && found
	}
	score.Value = number(formed)
	return score, ctx.Err()
}
