package reward

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

// Exact is the name of exactKind.
const Exact = "exact"

// ExactConfig holds the keys of kind "exact".
type ExactConfig struct {
	// Skip one leading <think>…</think> in kind "exact".
	Think bool `toml:"think"`
}

func exactKind() Kind {
	return Kind{
		Name:  Exact,
		About: "compares the whole response with the reference answer.",
		keys:  []string{"think"},
		build: func(r *Rule, _ int) (Func, error) { return exact{think: r.Think}, nil },
		lacks: func(_ *Rule, answer json.RawMessage) bool { return absent(answer) },
	}
}

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// exact scores 1 if the response is complete and equals the answer, else 0, in time
// linear in the response.
type exact struct {
	think bool // the response may begin with one <think>…</think>, and has no other such tag
}

func (e exact) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in, absent); err != nil {
		return Score{}, err
	}
	text, want, formed := in.Text, in.Prompt.AnswerText(), true
	var score Score
	if e.think {
		text, formed = afterThink(text)
		score.Parts = map[string]float64{"format": number(formed)}
	}
	if formed && len(text) <= maxVote {
		score.Answer = text
	}
	right := formed && in.Finish == rollout.Stop && text == want
	score.Value, score.Verdict = number(right), verdict(right)
	return score, nil
}

// afterThink returns text without its leading <think>…</think>, and whether the tags
// occur only there or not at all.
func afterThink(text string) (string, bool) {
	opens, closes := strings.Count(text, thinkOpen), strings.Count(text, thinkClose)
	if opens == 0 && closes == 0 {
		return text, true
	}
	if opens != 1 || closes != 1 || !strings.HasPrefix(text, thinkOpen) {
		return "", false
	}
	_, rest, _ := strings.Cut(text, thinkClose)
	return rest, true
}
