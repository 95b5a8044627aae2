// Package reward scores responses.
//
// A score that cannot be had is an error and never a number: neither a fault nor
// a deadline may look like a bad answer.
//
// Each kind of reward is a row in a file of its own: its name, what it does, its
// keys, their checks and its constructor. Kinds lists the rows.
package reward

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/rollout"
)

// ErrNoAnswer is wrapped where a kind that compares with an answer finds none.
var ErrNoAnswer = errors.New("the prompt has no answer, expected one to compare with")

// Input is one response to score.
type Input struct {
	Prompt *rollout.Prompt
	Text   string         // of the response
	Finish rollout.Finish // why it ended
	Length int            // in tokens
	trial  bool           // of Scorer.Try: a scorer that is away is not waited for
}

// Score is a reward and, where it has components, their values by name.
type Score struct {
	Value float64
	Parts map[string]float64
	// Verdict of a kind that compares with the prompt's answer.
	Verdict Verdict
	// Answer is what the response was taken to answer, in one form for all
	// that mean the same, so that responses can be counted by it; empty where
	// there is none or the kind looks for none.
	Answer string
}

// Verdict says what came of comparing a response with the prompt's answer.
type Verdict uint8

// The verdicts.
const (
	// Open is that of a kind that compares with no answer.
	Open Verdict = iota
	// Wrong is another answer, or none.
	Wrong
	// Right is the prompt's answer.
	Right
)

func verdict(right bool) Verdict {
	if right {
		return Right
	}
	return Wrong
}

// Right reports whether the response is right, which pass@k counts: as the
// verdict says, whatever else the value is made of, and where it is open whether
// the value is 1 or more.
func (s *Score) Right() bool {
	if s.Verdict == Open {
		return s.Value >= 1
	}
	return s.Verdict == Right
}

// Func scores responses. Calls may be concurrent, and as many as a period has
// responses. An error means that there is no score. A Func that may hang keeps a
// clock of its own, which starts when scoring does: a wait for its turn does not
// count.
type Func interface {
	Score(ctx context.Context, in Input) (Score, error)
}
