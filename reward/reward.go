// Package reward scores responses.
//
// A score that cannot be had is an error and never a number: neither a fault nor
// a deadline may look like a bad answer.
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
	// Answer is what the response was taken to answer, in one form for all
	// that mean the same, so that responses can be counted by it; empty where
	// there is none or the kind looks for none.
	Answer string
}

// Func scores responses. Calls may be concurrent, and as many as a period has
// responses. An error means that there is no score. A Func that may hang keeps a
// clock of its own, which starts when scoring does: a wait for its turn does not
// count.
type Func interface {
	Score(ctx context.Context, in Input) (Score, error)
}
