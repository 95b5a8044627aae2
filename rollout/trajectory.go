package rollout

import "fmt"

// Author says who wrote a span.
type Author string

// The authors of spans.
const (
	Policy      Author = "policy"      // tokens that the policy sampled or, in a demonstration, is to imitate
	Environment Author = "environment" // tokens that the policy read, such as a tool's result
)

// Span is consecutive tokens with one author. If the policy sampled them, one version of its weights did.
type Span struct {
	From Author  `json:"from"`
	IDs  []int32 `json:"ids"`
	// Logprobs has the natural log-probability of each token of IDs under the weights that sampled it. It
	// is nil for an environment and for a demonstration.
	Logprobs []float32 `json:"logprobs,omitempty"`
	Version  int64     `json:"version,omitempty"` // version of the weights that sampled the span; 0 if none did
	Trained  bool      `json:"trained,omitempty"` // whether the tokens carry loss; false for an environment
}

// IsTrained reports whether the tokens of s carry loss.
func IsTrained(s *Span) bool { return s.Trained }

// IsPolicy reports whether the author of s is the policy.
func IsPolicy(s *Span) bool { return s.From == Policy }

// Trajectory is what the policy and its environment wrote in turn, after a prompt.
type Trajectory []Span

// Sampled returns a trajectory of one trained span that the policy sampled: an answer without an environment.
// It keeps ids and logprobs, which have equal lengths.
func Sampled(ids []int32, logprobs []float32, version int64) Trajectory {
	return Trajectory{{From: Policy, IDs: ids, Logprobs: logprobs, Version: version, Trained: true}}
}

// Demonstrated returns a trajectory of one trained span that no policy sampled. It keeps ids.
func Demonstrated(ids []int32) Trajectory { return Sampled(ids, nil, 0) }

// Count returns the number of tokens in the spans that selects chooses.
func (t Trajectory) Count(selects func(*Span) bool) int {
	n := 0
	for i := range t {
		if selects(&t[i]) {
			n += len(t[i].IDs)
		}
	}
	return n
}

// Tokens returns the number of all tokens.
func (t Trajectory) Tokens() int { return t.Count(func(*Span) bool { return true }) }

// IDs returns all tokens. If t has one span, they share its memory, so the caller must not change them.
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

// Logprobs returns the recorded log-probabilities of the spans that selects chooses. If t has one span, they
// share its memory, so the caller must not change them.
func (t Trajectory) Logprobs(selects func(*Span) bool) []float32 {
	if len(t) == 1 && selects(&t[0]) {
		return t[0].Logprobs
	}
	var values []float32
	for i := range t {
		if selects(&t[i]) {
			values = append(values, t[i].Logprobs...)
		}
	}
	return values
}

// CheckSampled returns an error unless this version of the weights can have sampled t. All spans of the policy
// must have the version and a log-probability for each token, and at least one such token must exist. Spans
// of an environment must have neither and carry no loss. Nothing verifies an environment's tokens, so a
// caller must not take From and Trained from an instance.
func (t Trajectory) CheckSampled(version int64) error {
	for i := range t {
		if err := t[i].checkSampled(version); err != nil {
			return t.Within(i, err)
		}
	}
	if t.Count(IsPolicy) == 0 {
		return fmt.Errorf("%d tokens, none of the policy, expected at least 1", t.Tokens())
	}
	return nil
}

// Within adds the index of span i to an error, unless t has only one span.
func (t Trajectory) Within(i int, err error) error {
	if len(t) == 1 {
		return err
	}
	return fmt.Errorf("spans[%d]: %w", i, err)
}

func (s *Span) checkSampled(version int64) error {
	switch s.From {
	case Policy:
		if s.Version != version {
			return fmt.Errorf("version is %d, expected %d", s.Version, version)
		}
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
		if IsPolicy(&t[i]) {
			t[i].Version = version
		}
	}
}
