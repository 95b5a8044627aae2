package reward

import (
	"context"
	"strings"
)

// Format is the name of formatKind.
const Format = "format"

// FormatConfig holds the keys of kind "format".
type FormatConfig struct {
	// Tags that "format" requires, each once and in this order.
	Tags []string `toml:"tags"`
	// Start requires the first tag to open the response, after white space at most.
	Start bool `toml:"-"`
}

func formatKind() Kind {
	return Kind{
		Name:     Format,
		About:    "checks for tags such as <think>…</think>.",
		keys:     []string{"tags"},
		defaults: func(t *Term) { t.FormatConfig = DefaultFormat() },
		check:    checkFormat,
		build:    func(r *Rule, _ int) (Func, error) { return NewFormat(r.FormatConfig) },
	}
}

func checkFormat(v *validation, r *Rule) {
	v.expect(len(r.Tags) > 0, "tags", "is empty, expected one or more")
	seen := map[string]bool{}
	for _, tag := range r.Tags {
		if tag == "" || strings.ContainsAny(tag, "<>/ \n") || seen[tag] {
			v.fault("tags", "has %q, expected different names without brackets", tag)
			return
		}
		seen[tag] = true
	}
}

// DefaultFormat requires <think>…</think> at the start.
func DefaultFormat() FormatConfig { return FormatConfig{Tags: []string{"think"}, Start: true} }

// format requires the tags of cfg.
type format struct{ cfg FormatConfig }

// NewFormat returns the reward of kind "format": 1 if each tag occurs once, in order,
// and the first opens the response if Start is set, else 0. Each tag is also a part,
// which is 1 if the tag occurs once, wherever it is.
func NewFormat(cfg FormatConfig) (Func, error) {
	if err := formatKind().valid(Term{FormatConfig: cfg}, 0); err != nil {
		return nil, err
	}
	return format{cfg}, nil
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
