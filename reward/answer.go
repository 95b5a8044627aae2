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

// ready refuses a call that is over and a prompt that kind has nothing of to
// compare with.
func ready(ctx context.Context, in Input, kind string) error {
	if isNone(in.Prompt.Answer, kind) {
		return fmt.Errorf("score prompt %s: %w", in.Prompt.ID, ErrNoAnswer)
	}
	return ctx.Err()
}

// isNone reports whether an answer is none to a kind: null, an empty list and
// empty text, which "exact" and "prefix" alone take as it is, since to stop at
// once may be what is asked for.
func isNone(raw json.RawMessage, kind string) bool {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return true
	case string(raw) == `""`:
		return kind != Exact && kind != Prefix
	case raw[0] != '[':
		return false
	}
	var items []any
	return json.Unmarshal(raw, &items) == nil && !slices.ContainsFunc(items, func(item any) bool { return item != nil && item != "" })
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
		if !isNone(item, Math) {
			texts = append(texts, (&rollout.Prompt{Answer: item}).AnswerText())
		}
	}
	return texts
}
