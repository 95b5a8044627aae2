package reward

import (
	"context"
	"encoding/json"
	"regexp"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

// Math is the name of mathKind.
const Math = "math"

func mathKind() Kind {
	return Kind{
		Name:  Math,
		About: "compares the one answer that the response states with the reference answer, as mathematics.",
		keys:  []string{"pattern"},
		check: func(v *validation, r *Rule) {
			if r.Pattern != "" {
				checkRegex(v, r)
			}
		},
		build: buildMath,
		lacks: func(_ *Rule, answer json.RawMessage) bool { return blank(answer) },
		refuses: func(r *Rule, p *rollout.Prompt) string {
			return refusesAll(p, func(task *grade.Task, want string) string {
				switch bare := grade.Bare(want); {
				case r.Pattern != "":
					return task.FaultOf(bare)
				case bare != want:
					return task.Fault(want)
				default:
					return task.Fault(`\boxed{` + want + `}`)
				}
			})
		},
	}
}

// buildMath returns the reward of a rule. With a pattern, it grades the match.
func buildMath(r *Rule, _ int) (Func, error) {
	if r.Pattern == "" {
		return NewMath(), nil
	}
	pattern, err := regexp.Compile(r.Pattern)
	return expression{pattern, true}, err
}

// mathematics is 1 if the response gives the prompt's answer, else 0.
type mathematics struct{}

// NewMath returns the reward of kind "math": 1 if a response gives the prompt's answer
// in a final form (package grade), else 0. If the answer is a JSON array, each of its
// items is right.
func NewMath() Func { return mathematics{} }

func (mathematics) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	wants := answers(in.Prompt)
	reason := ""
	for _, want := range wants {
		if reason = grade.NewTask(in.Prompt.Question(), want).Fault(in.Text); reason == "" {
			return Score{Value: 1, Verdict: Right, Answer: grade.Canonical(wants[0])}, nil // the grader finds more answers equal than Canonical
		}
	}
	return Score{Verdict: Wrong, Answer: grade.Answered(in.Text), Reason: reason}, nil
}
