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

// OverlongConfig is what kind "overlong" can be told.
type OverlongConfig struct {
	MaxTokens int // of a response, at most
	Buffer    int // tokens before MaxTokens over which the punishment grows
}

type overlong struct{ cfg OverlongConfig }

// NewOverlong is the reward of kind "overlong", soft over-long punishment (DAPO,
// arXiv:2503.14476, equation 13), for a response y:
//
//	0                                 |y| <= MaxTokens - Buffer
//	(MaxTokens - Buffer - |y|)/Buffer MaxTokens - Buffer < |y| <= MaxTokens
//	-1                                MaxTokens < |y|
func NewOverlong(cfg OverlongConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new overlong reward: %w", err)
	}
	return overlong{cfg}, nil
}

// validate reports a fault, beginning with its key.
func (c OverlongConfig) validate() error {
	switch {
	case c.MaxTokens < 1:
		return fmt.Errorf("max_tokens is %d, expected 1 or more", c.MaxTokens)
	case c.Buffer < 1 || c.Buffer > c.MaxTokens:
		return fmt.Errorf("buffer is %d, expected 1 to the length limit of %d tokens", c.Buffer, c.MaxTokens)
	}
	return nil
}

func (o overlong) Score(ctx context.Context, in Input) (Score, error) {
	over := in.Length - (o.cfg.MaxTokens - o.cfg.Buffer)
	value := max(-1, -float64(max(0, over))/float64(o.cfg.Buffer))
	return Score{Value: value + 0}, ctx.Err() // + 0: no negative zero
}

// RepetitionConfig is what kind "repetition" can be told.
type RepetitionConfig struct {
	Words   int     // in a row that count as one
	Penalty float64 // for nothing but repetition, less than 0
}

type repetition struct{ cfg RepetitionConfig }

// NewRepetition is the reward of kind "repetition" (Demystifying long chain of
// thought, arXiv:2502.03373, appendix): Penalty times the share of word n-grams
// that have been there before, whatever their case.
func NewRepetition(cfg RepetitionConfig) (Func, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new repetition reward: %w", err)
	}
	return repetition{cfg}, nil
}

// validate reports a fault, beginning with its key.
func (c RepetitionConfig) validate() error {
	switch {
	case c.Words < 1:
		return fmt.Errorf("words is %d, expected 1 or more", c.Words)
	case !(c.Penalty < 0 && c.Penalty >= -1e6):
		return fmt.Errorf("penalty is %v, expected less than 0 and at least -1e6", c.Penalty)
	}
	return nil
}

func (r repetition) Score(ctx context.Context, in Input) (Score, error) {
	fields := strings.Fields(strings.ToLower(in.Text))
	total := len(fields) - r.cfg.Words + 1
	if total < 1 {
		return Score{}, ctx.Err()
	}
	// Each n-gram is a part of one text.
	joined := strings.Join(fields, " ")
	seen := make(map[string]struct{}, total)
	end := 0
	for _, f := range fields[:r.cfg.Words] {
		end += len(f) + 1
	}
	for i, begin := 0, 0; ; i++ {
		seen[joined[begin:end-1]] = struct{}{}
		if i+1 == total {
			break
		}
		begin += len(fields[i]) + 1
		end += len(fields[i+r.cfg.Words]) + 1
	}
	return Score{Value: r.cfg.Penalty*(1-float64(len(seen))/float64(total)) + 0}, ctx.Err()
}
