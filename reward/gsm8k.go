package reward

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

// GSM8K is the name of gsm8kKind.
const GSM8K = "gsm8k"

func gsm8kKind() Kind {
	return Kind{
		Name:  GSM8K,
		About: "compares the number at the end of the response.",
		build: func(*Rule, int) (Func, error) { return NewGSM8K(), nil },
		lacks: func(_ *Rule, answer json.RawMessage) bool { return blank(answer) },
		refuses: func(_ *Rule, p *rollout.Prompt) string {
			return refusesAll(p, func(task *grade.Task, want string) string {
				if _, ok := hashed(want); !ok {
					want = "#### " + grade.Bare(want)
				}
				if _, ok := hashed(want); !ok {
					return grade.NoAnswer
				}
				return task.Fault(want)
			})
		},
	}
}

// hashed returns the text behind the last "####" of a response, and whether it begins with
// a number near the response's end.
func hashed(text string) (string, bool) {
	got, ok := grade.Hashed(text)
	number := strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(got, " "), "-"), ".,")
	ok = ok && strings.HasPrefix(got, " ") && number != "" && number[0] >= '0' && number[0] <= '9'
	return got, ok && strings.LastIndex(text, "####") >= len(text)-gsm8kTail
}

// gsm8k scores like verl's utils/reward_score/gsm8k.py, but only one well-formed number
// is an answer.
type gsm8k struct{}

// gsm8kTail is the length in bytes of the part of a response that may hold the answer.
const gsm8kTail = 300

// NewGSM8K returns the reward of kind "gsm8k": 1 if the number behind the last "#### " in
// a response's last 300 bytes equals the prompt's answer, else 0. A response that marks its
// answer in another way has none. The part "answered" is 1 if there is such a number. It
// agrees with kind "math" about every response that has the mark.
func NewGSM8K() Func { return gsm8k{} }

func (gsm8k) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	got, ok := hashed(in.Text)
	score := Score{Parts: map[string]float64{"answered": number(ok)}, Verdict: Wrong, Reason: grade.NoAnswer}
	if !ok {
		return score, nil
	}
	score.Answer = grade.Canonical(got)
	for _, want := range answers(in.Prompt) {
		if score.Reason = grade.NewTask(in.Prompt.Question(), want).Fault(in.Text); score.Reason == "" {
			score.Value, score.Verdict = 1, Right
			break
		}
	}
	return score, nil
}
