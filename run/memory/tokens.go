package memory

import (
	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/trainer"
)

// Tokens are numbers of tokens, at most.
type Tokens struct {
	Leaf    int // in a leaf, which a pass does not divide
	Step    int // in all sequences of a step
	Targets int // predicted in a step
	Leaves  int // of a step
}

// AddPrompt makes t cover steps whose prompts have this many tokens, with sequences of up to
// positions tokens.
func (t *Tokens) AddPrompt(prompt, positions int, r *configs.Rollout) {
	response := min(r.MaxTokens, positions-prompt)
	group, limit := prompt+r.GroupSize*response, attention.LeafRows(prompt)
	each := min(r.GroupSize, max(1, (limit-prompt)/max(1, response-1))) // responses of a leaf
	t.Leaf = max(t.Leaf, prompt+response, min(group, limit))
	t.Step = max(t.Step, r.PromptsPerStep*group)
	t.Targets = max(t.Targets, r.PromptsPerStep*r.GroupSize*response)
	t.Leaves = max(t.Leaves, r.PromptsPerStep*divide(r.GroupSize, each))
}

// Demonstrations returns the tokens of supervised fine-tuning with batches of this many examples.
func Demonstrations(all []trainer.Demonstration, batch int) Tokens {
	longest, response := 0, 0
	for i := range all {
		longest = max(longest, len(all[i].Prompt)+len(all[i].Response))
		response = max(response, len(all[i].Response))
	}
	each := max(1, trainer.DemonstrationRows/max(1, longest)) // examples of a leaf
	return Tokens{Leaf: max(longest, trainer.DemonstrationRows), Step: batch * longest, Targets: batch * response, Leaves: divide(batch, each)}
}

// Cut is how a trainer cuts a step into micro-batches.
type Cut struct {
	Updates int // of the step
	Rows    int // of a micro-batch, at most
	// MicroBatches is the number of those of an update for each replica, if all its responses
	// are there at once and as long as possible.
	MicroBatches int
}

// Cut returns how a run cuts steps of t; sft means supervised training.
func (t *Tokens) Cut(cfg *configs.Config, sft bool) Cut {
	c := Cut{Updates: 1}
	update, leaves, rows := t.Step, t.Leaves, cfg.Train.MicroBatchTokens
	if !sft {
		c.Updates = cfg.Train.Minibatches
		prompts := divide(cfg.Rollout.PromptsPerStep, c.Updates)
		update, leaves = divide(t.Step*prompts, cfg.Rollout.PromptsPerStep), divide(t.Leaves*prompts, cfg.Rollout.PromptsPerStep)
	}
	rows = min(rows, divide(update, cfg.Parallel.DP*cfg.Parallel.PP))
	c.Rows = min(max(rows, t.Leaf), update)
	if t.Leaf > 0 {
		c.MicroBatches = divide(divide(leaves, max(1, rows/t.Leaf)), cfg.Parallel.DP)
	}
	return c
}

// divide rounds up.
func divide(a, b int) int { return (a + b - 1) / b }
