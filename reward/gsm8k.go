package reward

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/easyrl/easyrl/reward/grade"
)

// GSM8K is the name of gsm8kKind.
const GSM8K = "gsm8k"

func gsm8kKind() Kind {
	return Kind{
		Name:  GSM8K,
		About: "compares the number at the end of the response.",
		build: func(*Rule, int) (Func, error) { return NewGSM8K(), nil },
		lacks: func(_ *Rule, answer json.RawMessage) bool { return blank(answer) },
	}
}

// gsm8k scores like verl's utils/reward_score/gsm8k.py, but only one well-formed number
// is an answer.
type gsm8k struct{}

// gsm8kTail is the length in bytes of the part of a response that may hold the answer.
const gsm8kTail = 300

// gsm8kAnswer matches the text behind the mark.
var gsm8kAnswer = regexp.MustCompile(`^ -?[0-9.,]*[0-9]`)

// NewGSM8K returns the reward of kind "gsm8k": 1 if the number behind the last "#### " in
// a response's last 300 bytes equals the prompt's answer, else 0. A response that marks its
// answer in another way has none. The part "answered" is 1 if there is such a number. It agrees with kind
// "math" about every response that has the mark.
func NewGSM8K() Func { return gsm8k{} }

func (gsm8k) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	got, ok := grade.Hashed(in.Text)
	ok = ok && strings.LastIndex(in.Text, "####") >= len(in.Text)-gsm8kTail && gsm8kAnswer.MatchString(got)
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
