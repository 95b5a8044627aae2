package rollout

import "fmt"

// Author says who wrote a span.
type Author string

// The authors of spans.
const (
	Policy      Author = "policy"      // tokens that the policy sampled, or a demonstration for it to imitate
	Environment Author = "environment" // tokens that the policy read, such as a tool's result
)

// Span is a run of tokens with one author and, if that is the policy, one version of its weights.
type Span struct {
	From Author  `json:"from"`
	IDs  []int32 `json:"ids"`
	// Logprobs has the natural log-probability of each of IDs under the weights that sampled them. It is
	// nil for an environment and for a demonstration.
	Logprobs []float32 `json:"logprobs,omitempty"`
	Version  int64     `json:"version,omitempty"` // version of the weights that sampled the span; 0 if none did
	Trained  bool      `json:"trained,omitempty"` // whether the tokens bear loss; false for an environment
}

// IsTrained reports whether the tokens of s bear loss.
func IsTrained(s *Span) bool { return s.Trained }

// IsSampled reports whether the policy wrote s.
func IsSampled(s *Span) bool { return s.From == Policy }

// Trajectory is what the policy and its environment wrote in turn, after a prompt.
type Trajectory []Span

// Sampled returns a trajectory of one trained span, as a single answer to a prompt has it.
func Sampled(ids []int32, logprobs []float32, version int64) Trajectory {
	return Trajectory{{From: Policy, IDs: ids, Logprobs: logprobs, Version: version, Trained: true}}
}

// Demonstrated returns a trajectory of one trained span that nothing sampled.
func Demonstrated(ids []int32) Trajectory { return Sampled(ids, nil, 0) }

// Count returns the number of tokens in the spans that in selects.
func (t Trajectory) Count(in func(*Span) bool) int {
	n := 0
	for i := range t {
		if in(&t[i]) {
			n += len(t[i].IDs)
		}
	}
	return n
}

// Tokens returns the number of all tokens.
func (t Trajectory) Tokens() int { return t.Count(func(*Span) bool { return true }) }

// IDs returns all tokens. The caller must not change them: those of a single span are the span's own.
func (t Trajectory) IDs() []int32 {
	if len(t) == 1 {
		return t[0].IDs
	}
	var ids []int32
	for i := range t {
		ids = append(ids, t[i].IDs...)
	}
	return ids
}

// Logprobs returns the recorded log-probabilities of the spans that in selects. The caller must not change
// them: those of a single span are the span's own.
func (t Trajectory) Logprobs(in func(*Span) bool) []float32 {
	if len(t) == 1 && in(&t[0]) {
		return t[0].Logprobs
	}
	var values []float32
	for i := range t {
		if in(&t[i]) {
			values = append(values, t[i].Logprobs...)
		}
	}
	return values
}

// CheckSampled returns an error unless the policy and an environment wrote t in turn while it was sampled:
// each of the policy's tokens has a log-probability, and an environment's have none and bear no loss.
func (t Trajectory) CheckSampled() error {
	for i := range t {
		if err := t[i].checkSampled(); err != nil {
			if len(t) > 1 {
				err = fmt.Errorf("spans[%d]: %w", i, err)
			}
			return err
		}
	}
	if t.Count(IsSampled) == 0 {
		return fmt.Errorf("%d tokens, none of the policy, expected at least 1", t.Tokens())
	}
	return nil
}

func (s *Span) checkSampled() error {
	switch s.From {
	case Policy:
		if len(s.IDs) == 0 || len(s.IDs) != len(s.Logprobs) {
			return fmt.Errorf("%d ids and %d logprobs, expected equally many, at least 1", len(s.IDs), len(s.Logprobs))
		}
	case Environment:
		if len(s.Logprobs) > 0 || s.Version != 0 || s.Trained {
			return fmt.Errorf("%d logprobs, version %d and trained %v, expected none, 0 and false for an environment",
				len(s.Logprobs), s.Version, s.Trained)
		}
	default:
		return fmt.Errorf("from is %.60q, expected %q or %q", s.From, Policy, Environment)
	}
	return nil
}

// SetVersion sets the version of the spans that the policy wrote.
func (t Trajectory) SetVersion(version int64) {
	for i := range t {
		if IsSampled(&t[i]) {
			t[i].Version = version
		}
	}
}

// OtherVersion returns the first version other than the given one that sampled a span, and whether there
// is one.
func (t Trajectory) OtherVersion(version int64) (other int64, found bool) {
	for i := range t {
		if s := &t[i]; IsSampled(s) && s.Version != version {
			return s.Version, true
		}
	}
	return 0, false
}
