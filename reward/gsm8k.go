package reward

import (
	"context"
	"encoding/json"
	"math/big"
	"strings"
)

// GSM8K is the name of gsm8kKind.
const GSM8K = "gsm8k"

// GSM8KConfig holds the keys of kind "gsm8k".
type GSM8KConfig struct {
	// Flexible lets "gsm8k" take the last number, also without "#### " before it.
	Flexible bool `toml:"flexible"`
	// FormatScore is what "gsm8k" gives for a wrong number in the right place.
	FormatScore float64 `toml:"format_score"`
}

func gsm8kKind() Kind {
	return Kind{
		Name:  GSM8K,
		About: "compares the number that a response ends with.",
		keys:  []string{"flexible", "format_score"},
		check: func(v *validation, r *Rule) {
			v.expect(finite(r.FormatScore), "format_score", "is %v, expected a finite number", r.FormatScore)
		},
		build: func(r *Rule, _ int) (Func, error) { return NewGSM8K(r.GSM8KConfig), nil },
		lacks: func(_ *Rule, answer json.RawMessage) bool { return blank(answer) },
	}
}

// gsm8k scores as verl's utils/reward_score/gsm8k.py does.
type gsm8k struct{ cfg GSM8KConfig }

// NewGSM8K is the reward of kind "gsm8k": 1 where the number that a response
// ends with, in its last 300 bytes, is that of the prompt's answer, FormatScore
// where it is another one, 0 where there is none. Commas and the point at the end
// do not count, and 18.00 is 18. The part "answered" says whether there was one.
func NewGSM8K(cfg GSM8KConfig) Func { return gsm8k{cfg} }

// gsm8kTail is how much of a response may hold the answer, in bytes.
const gsm8kTail = 300

func (g gsm8k) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, blank); err != nil {
		return Score{}, err
	}
	tail := in.Text[max(0, len(in.Text)-gsm8kTail):]
	got, ok := marked(tail)
	if g.cfg.Flexible {
		got, ok = lastNumber(tail)
	}
	score := Score{Parts: map[string]float64{"answered": number(ok)}, Verdict: Wrong}
	if !ok {
		return score, nil
	}
	score.Value, score.Answer = g.cfg.FormatScore, plainNumber(got)
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

// marked is the number behind the last "#### " that has one.
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

// numeral is the length of the number that s begins with.
func numeral(s string) int {
	rest := strings.TrimPrefix(s, "-")
	body := strings.TrimLeft(rest, "0123456789.,")
	if len(body) == len(rest) {
		return 0
	}
	return len(s) - len(body)
}

// lastNumber is the last number of s.
func lastNumber(s string) (string, bool) {
	end := strings.LastIndexAny(s, "0123456789") + 1
	if end == 0 {
		return "", false
	}
	begin := end
	for begin > 0 && strings.IndexByte("0123456789.,", s[begin-1]) >= 0 {
		begin--
	}
	if begin > 0 && s[begin-1] == '-' {
		begin--
	}
	return s[begin:end], true
}

// tidy is a number without commas, currency and the point at its end.
func tidy(s string) string {
	return strings.TrimRight(strings.NewReplacer(",", "", "$", "").Replace(s), ".")
}

// plainNumber is one text for all numbers that are the same.
func plainNumber(s string) string {
	s = tidy(s)
	if r, ok := new(big.Rat).SetString(s); ok {
		return r.RatString()
	}
	return s
}

// sameNumber compares as text and, where both are numbers, by value.
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
