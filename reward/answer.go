package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/rollout"
)

// maxVote is how long an answer may be, in bytes, to be counted.
const maxVote = 4096

// ready refuses a call that is over and a prompt whose answer is none.
func ready(ctx context.Context, in Input, none func(answer json.RawMessage) bool) error {
	if none(in.Prompt.Answer) {
		return fmt.Errorf("score prompt %s: %w", in.Prompt.ID, ErrNoAnswer)
	}
	return ctx.Err()
}

// blank reports whether an answer is none: empty text, or absent.
func blank(answer json.RawMessage) bool { return string(answer) == `""` || absent(answer) }

// absent reports whether an answer is null or an empty list. Empty text is an
// answer: to stop at once may be what is asked for.
func absent(answer json.RawMessage) bool {
	if len(answer) == 0 || string(answer) == "null" {
		return true
	}
	var items []any
	return answer[0] == '[' && json.Unmarshal(answer, &items) == nil &&
		!slices.ContainsFunc(items, func(item any) bool { return item != nil && item != "" })
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// answers are those that a prompt takes, one or more where it is ready.
func answers(p *rollout.Prompt) []string {
	var list []json.RawMessage
	if json.Unmarshal(p.Answer, &list) != nil || len(list) == 0 {
		return []string{p.AnswerText()}
	}
	var texts []string
	for _, item := range list {
		if !blank(item) {
			texts = append(texts, (&rollout.Prompt{Answer: item}).AnswerText())
		}
	}
	return texts
}
