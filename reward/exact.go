package reward

import (
	"context"
	"fmt"
	"strings"

	"github.com/easyrl/easyrl/rollout"
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// maxVote is how long an answer may be, in bytes, to be counted.
const maxVote = 4096

// exact is 1 where the response ended by itself and is the answer, else 0. Its
// time is linear in the response.
type exact struct {
	think bool // the response may begin with one <think>…</think>, and has no other such tag
	trim  bool // white space around either side does not count
}

func (e exact) Score(ctx context.Context, in Input) (Score, error) {
	if err := ready(ctx, in); err != nil {
		return Score{}, err
	}
	text, want, formed := in.Text, in.Prompt.AnswerText(), true
	var score Score
	if e.think {
		text, formed = afterThink(text)
		score.Parts = map[string]float64{"format": number(formed)}
	}
	if e.trim {
		text, want = strings.TrimSpace(text), strings.TrimSpace(want)
	}
	if formed && len(text) <= maxVote {
		score.Answer = text
	}
	score.Value = number(formed && in.Finish == rollout.Stop && text == want)
	return score, nil
}

// afterThink is text without its leading <think>…</think>, and whether tags
// occur in that one way or not at all.
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

// ready refuses a call that is over and a prompt that nothing can be compared
// with.
func ready(ctx context.Context, in Input) error {
	if len(in.Prompt.Answer) == 0 || string(in.Prompt.Answer) == "null" {
		return fmt.Errorf("score prompt %s: %w", in.Prompt.ID, ErrNoAnswer)
	}
	return ctx.Err()
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
