package memory

import (
	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/trainer"
)

// Tokens are upper bounds on numbers of tokens in a run's data.
type Tokens struct {
	Sequence int // tokens in a prompt and a response
	Leaf     int // tokens in a leaf, which a pass does not divide
	Step     int // tokens in all sequences of a step
}

// AddPrompt raises t to cover steps whose prompts all have the given number of tokens. positions is the model's
// context.
func (t *Tokens) AddPrompt(prompt, positions int, cfg *configs.Config) {
	r := &cfg.Rollout
	response := min(r.MaxTokens, positions-prompt)
	group := prompt + r.GroupSize*response
	t.Sequence = max(t.Sequence, prompt+response)
	t.Leaf = max(t.Leaf, prompt+response, min(group, attention.LeafRows(cfg.Numerics(), prompt)))
	t.Step = max(t.Step, r.PromptsPerStep*group)
}

// Demonstrations returns the tokens of supervised fine-tuning on demonstrations, with batch of them in a step.
func Demonstrations(all []trainer.Demonstration, batch int) Tokens {
	longest := 0
	for i := range all {
		longest = max(longest, len(all[i].Prompt)+all[i].Spans.Tokens())
	}
	return Tokens{Sequence: longest, Leaf: max(longest, trainer.DemonstrationRows), Step: batch * longest}
}

// MicroBatchRows returns the maximum rows of the micro-batches into which a run cuts its steps. sft selects
// supervised training.
func (t *Tokens) MicroBatchRows(cfg *configs.Config, sft bool) int {
	updateTokens := t.Step
	if !sft {
		updatePrompts := ceilDiv(cfg.Rollout.PromptsPerStep, cfg.Train.Minibatches)
		updateTokens = ceilDiv(t.Step*updatePrompts, cfg.Rollout.PromptsPerStep)
	}
	rows := min(cfg.Train.MicroBatchTokens, ceilDiv(updateTokens, cfg.Parallel.DP*cfg.Parallel.PP))
	return min(max(rows, t.Leaf), updateTokens)
}

// ceilDiv returns a/b rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }
