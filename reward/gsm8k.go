package reward

import (
	"context"
	"encoding/json"
	"math/big"
	"strings"
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

// gsm8k scores as verl's utils/reward_score/gsm8k.py does.
type gsm8k struct{}

// NewGSM8K returns the reward of kind "gsm8k": 1 if the number behind the last "#### "
// in a response's last 300 bytes equals the prompt's answer, else 0. Commas and a
// final point do not count, and 18.00 equals 18. The part "answered" is 1 if there is
// such a number.
func NewGSM8K() Func { return gsm8k{} }

// gsm8kTail is the length in bytes of the part of a response that may hold the answer.
const gsm8kTail = 300

func (gsm8k) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	tail := in.Text[max(0, len(in.Text)-gsm8kTail):]
	got, ok := marked(tail)
	score := Score{Parts: map[string]float64{"answered": number(ok)}, Verdict: Wrong}
	if !ok {
		return score, nil
	}
	score.Answer = plainNumber(got)
	for _, want := range answers(in.Prompt) {
		if _, after, found := strings.Cut(want, "####"); found {
			want = after
		}
		if sameNumber(strings.TrimSpace(want), got) {
			score.Value, score.Verdict = 1, Right
		}
	}
	return score, nil
}

// marked returns the number after the last "#### " that has one.
func marked(s string) (string, bool) {
	for end := len(s); ; {
		i := strings.LastIndex(s[:end], "#### ")
		if i < 0 {
			return "", false
		}
		if n := numeral(s[i+len("#### "):]); n > 0 {
			return s[i+len("#### ") : i+len("#### ")+n], true
		}
		end = i
	}
}

// numeral returns the length of the number at the start of s.
func numeral(s string) int {
	rest := strings.TrimPrefix(s, "-")
	body := strings.TrimLeft(rest, "0123456789.,")
	if len(body) == len(rest) {
		return 0
	}
	return len(s) - len(body)
}

// tidy is a number without commas, currency and the point at its end.
func tidy(s string) string {
	return strings.TrimRight(strings.NewReplacer(",", "", "$", "").Replace(s), ".")
}

// plainNumber returns one text for all equal numbers.
func plainNumber(s string) string {
	s = tidy(s)
	if r, ok := new(big.Rat).SetString(s); ok {
		return r.RatString()
	}
	return s
}

// sameNumber compares as text and, if both are numbers, by value.
func sameNumber(a, b string) bool {
	a, b = tidy(a), tidy(b)
	if a == b {
		return a != ""
	}
	if len(a) > gsm8kTail || strings.Trim(a+b, "-.0123456789") != "" {
		return false
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}
