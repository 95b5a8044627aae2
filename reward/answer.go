package reward

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/reward/grade"
	"github.com/easyrl/easyrl/rollout"
)

// maxVote is the maximum length in bytes of an answer that counts as a vote (Score.Answer). It bounds memory.
const maxVote = 4096

// ready returns an error if the prompt lacks an answer, or if ctx is done.
func ready(ctx context.Context, in Input, lacks func(answer json.RawMessage) bool) error {
	if lacks(in.Prompt.Answer) {
		return fmt.Errorf("score prompt %s: %w", in.Prompt.ID, ErrNoAnswer)
	}
	return ctx.Err()
}

// blank reports whether an answer is empty text or absent.
func blank(answer json.RawMessage) bool { return string(answer) == `""` || absent(answer) }

// absent reports whether an answer is null or an empty list. Empty text is an answer:
// the right response may be to stop at once.
func absent(answer json.RawMessage) bool {
	if len(answer) == 0 || string(answer) == "null" {
		return true
	}
	if answer[0] != '[' {
		return false
	}
	var items []any
	return json.Unmarshal(answer, &items) == nil &&
		!slices.ContainsFunc(items, func(item any) bool { return item != nil && item != "" })
}

// number returns 1 for true and 0 for false.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// refusesAll returns "" if any of p's answers, stated as a response, has no fault. Otherwise it returns the
// fault of the first one. The function fault returns what is wrong with a response that states the answer
// want.
func refusesAll(p *rollout.Prompt, fault func(task *grade.Task, want string) string) (first string) {
	question := p.Question()
	for _, want := range answers(p) {
		reason := fault(grade.NewTask(question, want), want)
		if reason == "" {
			return ""
		}
		first = cmp.Or(first, reason)
	}
	return first
}

// answers returns the answers that a prompt accepts. There is at least one if the
// prompt is ready.
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
