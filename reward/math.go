package reward

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

// Math is the name of mathKind.
const Math = "math"

// AnyMarks is the value of MathConfig.Marks that grades the last number of a response without a
// mark.
const AnyMarks = "any"

// MathConfig holds the keys that kinds "math" and "gsm8k" share.
type MathConfig struct {
	// Set to "any" to grade the last number of a response that marks no answer: for easyrl eval and
	// score, and models that never mark. A policy games it, so easyrl train refuses it. By default,
	// only the last mark counts, such as `\boxed{}`.
	Marks string `toml:"marks"`
}

// checkMarks reports an unknown value of key "marks".
func checkMarks(v *validation, r *Rule) {
	v.expect(slices.Contains([]string{"", AnyMarks}, r.Marks), "marks", `is %q, expected "" or %q`, r.Marks, AnyMarks)
}

func mathKind() Kind {
	return Kind{
		Name:  Math,
		About: "compares the answer that the response marks last with the reference answer, as mathematics.",
		keys:  []string{"pattern", "marks"},
		check: func(v *validation, r *Rule) {
			if r.Pattern != "" {
				checkRegex(v, r)
			}
			checkMarks(v, r)
			v.expect(r.Pattern == "" || r.Marks != AnyMarks, "marks", "is %q beside pattern, which finds the answer",
				r.Marks)
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
		return mathematics{lenient: r.Marks == AnyMarks}, nil
	}
	pattern, err := regexp.Compile(r.Pattern)
	return expression{pattern: pattern, math: true}, err
}

// mathematics scores 1 if the response gives the prompt's answer, else 0.
type mathematics struct {
	lenient bool // marks = AnyMarks: without a mark, the last number is the answer
	numbers bool // only marks that hold a number are answers; the part "answered" is 1 if there is one
}

// NewMath returns the reward of kind "math": 1 if a response's last mark is the prompt's answer
// in a final form (package grade), else 0. If the answer is a JSON array, each of its
// items is right.
func NewMath() Func { return mathematics{} }

func (m mathematics) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	text := withThinkTag(in)
	answered, fault := grade.Answered, (*grade.Task).Fault
	if m.lenient || in.anyMarks {
		answered, fault = grade.AnsweredAny, (*grade.Task).FaultAny
	}
	score := Score{Verdict: Wrong, Answer: answered(text)}
	if m.numbers {
		hasNumber := strings.ContainsAny(score.Answer, "0123456789")
		score.Parts = map[string]float64{"answered": number(hasNumber)}
		if !hasNumber && score.Answer != "" {
			score.Answer, score.Reason = "", grade.NoAnswer
			return score, nil
		}
	}
	wants := answers(in.Prompt)
	for _, want := range wants {
		task := grade.NewTask(in.Prompt.Question(), want)
		score.Reason = fault(task, text)
		if score.Reason == "" {
			score.Value, score.Verdict = 1, Right
			// The grader finds more answers equal than Canonical: give all right responses the same vote.
			score.Answer = grade.Canonical(wants[0])
			break
		}
	}
	return score, nil
}

// withThinkTag returns the text of a response. If the prompt ends with the tag that opens the reasoning,
// the text starts with that tag, so that the grader finds no answer in a response that ends during its
// reasoning.
func withThinkTag(in Input) string {
	if strings.HasSuffix(strings.TrimSpace(in.Prompt.Text), thinkOpen) {
		return thinkOpen + in.Text
	}
	return in.Text
}

// ForEvaluation returns f. If marks is AnyMarks, the result grades with that value of MathConfig.Marks instead of
// f's. It is as safe for concurrent use as f.
func ForEvaluation(f Func, marks string) Func {
	if marks != AnyMarks {
		return f
	}
	return unmarked{f}
}

// unmarked grades responses without a mark by their last number.
type unmarked struct{ Func }

func (u unmarked) Score(ctx context.Context, in Input) (Score, error) {
	in.anyMarks = true
	return u.Func.Score(ctx, in)
}
