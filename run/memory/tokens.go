package memory

import (
	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/trainer"
)

// Tokens are numbers of tokens, at most.
type Tokens struct {
	Leaf int // in a leaf, which a pass does not divide
	Step int // in all sequences of a step
}

// AddPrompt makes t cover steps whose prompts have this many tokens, with sequences of up to
// positions tokens.
func (t *Tokens) AddPrompt(prompt, positions int, r *configs.Rollout) {
	response := min(r.MaxTokens, positions-prompt)
	group := prompt + r.GroupSize*response
	t.Leaf = max(t.Leaf, prompt+response, min(group, attention.LeafRows(prompt)))
	t.Step = max(t.Step, r.PromptsPerStep*group)
}

// Demonstrations returns the tokens of supervised fine-tuning with batches of this many examples.
func Demonstrations(all []trainer.Demonstration, batch int) Tokens {
	longest := 0
	for i := range all {
		longest = max(longest, len(all[i].Prompt)+len(all[i].Response))
	}
	return Tokens{Leaf: max(longest, trainer.DemonstrationRows), Step: batch * longest}
}

// MicroBatchRows returns the rows of a micro-batch, at most, into which a run cuts steps of t; sft
// means supervised training.
func (t *Tokens) MicroBatchRows(cfg *configs.Config, sft bool) int {
	update := t.Step
	if !sft {
		prompts := divide(cfg.Rollout.PromptsPerStep, cfg.Train.Minibatches) // of an update
		update = divide(t.Step*prompts, cfg.Rollout.PromptsPerStep)
	}
	rows := min(cfg.Train.MicroBatchTokens, divide(update, cfg.Parallel.DP*cfg.Parallel.PP))
	return min(max(rows, t.Leaf), update)
}

// divide rounds up.
func divide(a, b int) int { return (a + b - 1) / b }
