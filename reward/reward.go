// Package reward scores responses.
//
// A failure to score is an error, never a number: a fault or a missed deadline must not
// look like a bad answer.
//
// Each kind of reward has a file with its name, description, keys, checks and
// constructor. Kinds lists them.
package reward

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/easyrl/easyrl/rollout"
)

// ErrNoAnswer is wrapped by the error of a kind that compares with an answer and finds
// none.
var ErrNoAnswer = errors.New("the prompt has no reference answer to compare with")

// Input is one response to score.
type Input struct {
	Prompt *rollout.Prompt
	Text   string         // text of the response
	Finish rollout.Finish // why the response ended
	Length int            // length of the response in tokens

	trial    bool // set by Scorer.Try: do not wait for an unavailable scorer
	anyMarks bool // set by ForEvaluation: grade as with marks = AnyMarks
}

// Score is a reward and the values of its components by name, if it has any.
type Score struct {
	Value float64
	Parts map[string]float64
	// Verdict is the result of comparing with the prompt's answer.
	Verdict Verdict
	// Answer is the answer that the response gives, in one form for all equal answers,
	// so that responses can be counted by it. Empty if there is none or the kind does
	// not look for one.
	Answer string
	// Reason says why the response is not right. Empty if it is, or if the kind gives none.
	Reason string
}

// MaxScore is the maximum absolute value of a score and of its parts. A larger value is a mistake of the
// scorer, and would outweigh all other rewards of its group.
const MaxScore = 1e6

// Check returns an error that names a number of the score that is not finite, or whose absolute value is larger
// than MaxScore.
func (s *Score) Check() error {
	if err := checkRange("reward", s.Value); err != nil {
		return err
	}
	for name, x := range s.Parts {
		if !inRange(x) {
			return checkRange("part "+name, x)
		}
	}
	return nil
}

// inRange reports whether x is from -MaxScore to MaxScore. NaN is not.
func inRange(x float64) bool { return math.Abs(x) <= MaxScore }

// checkRange returns an error unless x is in range.
func checkRange(name string, x float64) error {
	if inRange(x) {
		return nil
	}
	return fmt.Errorf("%s is %v, expected a number from -%.0f to %.0f", name, x, MaxScore, MaxScore)
}

// Verdict is the result of comparing a response with the prompt's answer.
type Verdict uint8

// The verdicts.
const (
	// Open is the verdict of kinds that do not compare responses with an answer.
	Open Verdict = iota
	// Wrong means that the response gives another answer than the prompt's, or none.
	Wrong
	// Right means that the response gives the prompt's answer.
	Right
)

// verdict returns Right or Wrong.
func verdict(right bool) Verdict {
	if right {
		return Right
	}
	return Wrong
}

// Right reports whether the response counts as right for pass@k: by its verdict or, if
// that is Open, if the value is at least 1.
func (s *Score) Right() bool {
	if s.Verdict == Open {
		return s.Value >= 1
	}
	return s.Verdict == Right
}

// Func scores responses. Calls may be concurrent, up to one per response of a step. An
// error means that there is no score. A Func that may hang sets its own deadline,
// which starts with scoring and excludes time in a queue.
type Func interface {
	Score(ctx context.Context, in Input) (Score, error)
}
