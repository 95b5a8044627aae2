package reward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/easyrl/easyrl/rollout"
)

// ErrNoReward is wrapped by the error for a prompt whose data set has no reward.
var ErrNoReward = errors.New("no reward is configured for this data source")

// Scorer is the reward of a run. It is safe for concurrent use.
type Scorer struct {
	bySource map[string]sourceReward
	other    sourceReward // reward of all other sources; its Func is nil if only those of bySource are scored
	external []external
}

// sourceReward is the reward of a data source.
type sourceReward struct {
	Func
	external bool // a program or service computes at least a part of it
}

// external is a reward that a program or service computes.
type external interface {
	Func
	io.Closer
	Retries() int64
	Capacity() int
}

// New returns the reward that cfg describes for responses of at most maxTokens. The
// caller closes it after the last call of Score.
func New(cfg Config, maxTokens int) (*Scorer, error) {
	if err := cfg.Validate(maxTokens); err != nil {
		return nil, fmt.Errorf("new reward: %w", err)
	}
	s := &Scorer{bySource: map[string]sourceReward{}}
	var err error
	if cfg.Kind != "" {
		s.other, err = s.addRule(&cfg.Rule, maxTokens)
	}
	for _, source := range slices.Sorted(maps.Keys(cfg.Sources)) {
		if err == nil {
			s.bySource[source], err = s.addRule(cfg.Sources[source], maxTokens)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// addRule builds the reward of a rule and adds its programs and services to s.external.
func (s *Scorer) addRule(r *Rule, maxTokens int) (sourceReward, error) {
	f, err := r.build(maxTokens)
	if err != nil {
		return sourceReward{}, err
	}
	list := externals(f)
	s.external = append(s.external, list...)
	return sourceReward{f, len(list) > 0}, nil
}

// externals returns f, or the components of f, that programs or services compute.
func externals(f Func) (list []external) {
	switch f := f.(type) {
	case external:
		return []external{f}
	case *sum:
		for _, c := range f.components {
			list = append(list, externals(c.Func)...)
		}
	}
	return list
}

// Score returns the score by the reward of the prompt's data source.
func (s *Scorer) Score(ctx context.Context, in Input) (Score, error) {
	f := s.forSource(in.Prompt.Source)
	if f.Func == nil {
		return Score{}, fmt.Errorf("score prompt %s of source %q: %w", in.Prompt.ID, in.Prompt.Source, ErrNoReward)
	}
	return f.Score(ctx, in)
}

// forSource returns the reward of a data source.
func (s *Scorer) forSource(source string) sourceReward {
	if f, ok := s.bySource[source]; ok {
		return f
	}
	return s.other
}

// trials is the number of prompts of a data source that Try scores: a single failure
// may be due to the prompt.
const trials = 2

// Try asks the programs and services of a run to score the answers of its first
// prompts, so that a broken one fails before sampling starts. It fails if no prompt of
// a data source gets a score. It does not wait for an unavailable service.
func (s *Scorer) Try(ctx context.Context, prompts []rollout.Prompt) error {
	first := map[string][]*rollout.Prompt{}
	for i := range prompts {
		p := &prompts[i]
		if list := first[p.Source]; len(list) < trials && s.forSource(p.Source).external {
			first[p.Source] = append(list, p)
		}
	}
	var scoring sync.WaitGroup
	failures := map[string][]error{}
	for source, list := range first {
		failures[source] = make([]error, len(list)) // each goroutine sets one element
		for i, p := range list {
			scoring.Go(func() {
				_, failures[source][i] = s.Score(ctx,
					Input{Prompt: p, Text: p.AnswerText(), Finish: rollout.Stop, Length: 1, trial: true})
			})
		}
	}
	scoring.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, source := range slices.Sorted(maps.Keys(failures)) {
		if !slices.Contains(failures[source], nil) {
			return fmt.Errorf("reward start-up check: %w", failures[source][0])
		}
	}
	return nil
}

// External reports whether programs or services compute the reward, or a part of it.
func (s *Scorer) External() bool { return len(s.external) > 0 }

// Retries returns how often responses were sent to a program or service again.
func (s *Scorer) Retries() int64 {
	var n int64
	for _, e := range s.external {
		n += e.Retries()
	}
	return n
}

// Capacity returns the number of responses that the programs and services of the reward
// score at once; 0 if it has none.
func (s *Scorer) Capacity() (n int) {
	for _, e := range s.external {
		n += e.Capacity()
	}
	return n
}

// Close ends the processes and connections of the reward.
func (s *Scorer) Close() error {
	var faults []error
	for _, e := range s.external {
		faults = append(faults, e.Close())
	}
	return errors.Join(faults...)
}
