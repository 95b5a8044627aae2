package reward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// ErrNoReward is wrapped where a prompt's data set has no reward.
var ErrNoReward = errors.New("there is no reward for its data source")

// Scorer is the reward of a run. It is safe for concurrent use.
type Scorer struct {
	bySource map[string]Func
	other    Func // nil where only bySource's are scored
	external []external
}

// external is a reward that others compute.
type external interface {
	Func
	io.Closer
	Retries() int64
}

// New makes the reward that cfg describes; a response has maxTokens at most. The
// caller closes it when no Score is wanted any more.
func New(cfg Config, maxTokens int) (*Scorer, error) {
	if err := cfg.Validate(maxTokens); err != nil {
		return nil, fmt.Errorf("new reward: %w", err)
	}
	s := &Scorer{bySource: map[string]Func{}}
	var err error
	if cfg.Kind != "" {
		s.other, err = s.rule(&cfg.Rule, maxTokens)
	}
	for _, source := range slices.Sorted(maps.Keys(cfg.Sources)) {
		if err == nil {
			s.bySource[source], err = s.rule(cfg.Sources[source], maxTokens)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Scorer) rule(r *Rule, maxTokens int) (Func, error) {
	if r.Kind != Sum {
		return s.term(&r.Term, maxTokens)
	}
	var components []Component
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		p := r.Parts[name]
		f, err := s.term(&p.Term, maxTokens)
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", name, err)
		}
		components = append(components, Component{Name: name, Weight: p.Weight, Func: f})
	}
	return NewSum(components)
}

func (s *Scorer) term(t *Term, maxTokens int) (Func, error) {
	switch t.Kind {
	case Exact:
		return exact{think: t.Think, trim: t.Trim}, nil
	case Prefix:
		return prefix{}, nil
	case Math:
		return NewMath(), nil
	case GSM8K:
		return NewGSM8K(GSM8KConfig{Flexible: t.Flexible, FormatScore: t.FormatScore}), nil
	case Regex:
		return NewRegex(RegexConfig{Pattern: t.Pattern, Math: t.Compare == compareMath})
	case Format:
		return NewFormat(FormatConfig{Tags: t.Tags, Start: t.Start})
	case Overlong:
		return NewOverlong(OverlongConfig{MaxTokens: cmp.Or(t.MaxTokens, maxTokens), Buffer: t.Buffer})
	case Repetition:
		return NewRepetition(RepetitionConfig{Words: t.Words, Penalty: t.Penalty})
	}
	if t.Kind == HTTP {
		h := newService(t)
		s.external = append(s.external, h)
		return h, nil
	}
	c, err := newCommand(t)
	if err != nil {
		return nil, err
	}
	s.external = append(s.external, c)
	return c, nil
}

// Score asks the reward of the prompt's data source.
func (s *Scorer) Score(ctx context.Context, in Input) (Score, error) {
	f, ok := s.bySource[in.Prompt.Source]
	if !ok {
		f = s.other
	}
	if f == nil {
		return Score{}, fmt.Errorf("score prompt %s of source %q: %w", in.Prompt.ID, in.Prompt.Source, ErrNoReward)
	}
	return f.Score(ctx, in)
}

// Retries is how often a response was given to a program or a service again.
func (s *Scorer) Retries() int64 {
	var n int64
	for _, e := range s.external {
		n += e.Retries()
	}
	return n
}

// Close ends what the reward has started.
func (s *Scorer) Close() error {
	var faults []error
	for _, e := range s.external {
		faults = append(faults, e.Close())
	}
	return errors.Join(faults...)
}
