package trainer

import (
	"math"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/rollout"
)

// tally adds up what an update or a step divides by and reports.
// Tokens of responses whose pass was skipped count in the denominators of the
// loss and not in those of computed.
type tally struct {
	groups, responses       int
	kept, keptTokens        int     // responses that are trained, and their tokens
	zeroStd                 int     // groups whose rewards are all equal
	corrected               float64 // tokens that the correction bounds or masks
	promptTokens            int     // once a response, as trained
	prompts                 int     // once a group
	responseTokens, longest int
	clipped                 int // responses that hit the length limit
	rewards, rewardSquares  float64
	parts                   map[string]partSum // the rewards' components
	sources                 map[string]partSum // the rewards by data source
	rows, computed          int                // rows and response tokens that went through the models
	flops                   float64            // of the policy's forward and backward passes
	loss, pg, kl, clip      float64
	entropy                 float64
	mismatchMax, mismatchKL float64
	mismatchTokens          int
}

// partSum is a component of the reward over the responses that have it: where
// data sources have rewards of their own, not all do.
type partSum struct {
	sum float64
	n   int
}

func (p partSum) plus(q partSum) partSum { return partSum{p.sum + q.sum, p.n + q.n} }

func addTo(sums *map[string]partSum, name string, v partSum) {
	if *sums == nil {
		*sums = map[string]partSum{}
	}
	(*sums)[name] = (*sums)[name].plus(v)
}

// group counts a consumed group, of which the kept responses are trained.
func (t *tally) group(g *rollout.Group, rewards []float64, kept []int) {
	t.groups++
	t.prompts += len(g.Prompt.IDs)
	for i := range g.Responses {
		r := &g.Responses[i]
		t.responses++
		t.promptTokens += len(g.Prompt.IDs)
		t.responseTokens += len(r.IDs)
		t.longest = max(t.longest, len(r.IDs))
		if r.Finish == rollout.Length {
			t.clipped++
		}
		t.rewards += r.Reward
		t.rewardSquares += r.Reward * r.Reward
		addTo(&t.sources, g.Prompt.Source, partSum{r.Reward, 1})
		for name, v := range r.Parts {
			addTo(&t.parts, name, partSum{v, 1})
		}
	}
	if loss.Equal(rewards) {
		t.zeroStd++
	}
	t.kept += len(kept)
	for _, i := range kept {
		t.keptTokens += len(g.Responses[i].IDs)
	}
}

// micro adds a micro-batch's sums.
func (t *tally) micro(r *loss.Result, entropy []float32, rows int) {
	t.rows += rows
	t.computed += r.Tokens
	t.loss += r.Loss
	t.pg += r.PG
	t.kl += r.KL
	t.clip += r.Clipped
	t.corrected += r.Corrected
	for _, e := range entropy {
		t.entropy += float64(e)
	}
}

// mismatch compares the recomputed log-probabilities with the ones recorded when
// the tokens were sampled. Its KL is the k3 estimate (Schulman 2020) of the
// instance's distribution from the trainer's.
func (t *tally) mismatch(recomputed, behaviour []float32) {
	for i, lp := range recomputed {
		d := float64(lp) - float64(behaviour[i])
		t.mismatchMax = max(t.mismatchMax, math.Abs(d))
		t.mismatchKL += math.Expm1(d) - d
	}
	t.mismatchTokens += len(recomputed)
}

// add merges o into t.
func (t *tally) add(o *tally) {
	t.groups += o.groups
	t.responses += o.responses
	t.zeroStd += o.zeroStd
	t.promptTokens += o.promptTokens
	t.prompts += o.prompts
	t.responseTokens += o.responseTokens
	t.longest = max(t.longest, o.longest)
	t.clipped += o.clipped
	t.rewards += o.rewards
	t.rewardSquares += o.rewardSquares
	for name, v := range o.parts {
		addTo(&t.parts, name, v)
	}
	for name, v := range o.sources {
		addTo(&t.sources, name, v)
	}
	t.flops += o.flops
	t.rows += o.rows
	t.computed += o.computed
	t.loss += o.loss
	t.pg += o.pg
	t.kl += o.kl
	t.clip += o.clip
	t.corrected += o.corrected
	t.kept += o.kept
	t.keptTokens += o.keptTokens
	t.entropy += o.entropy
	t.mismatchMax = max(t.mismatchMax, o.mismatchMax)
	t.mismatchKL += o.mismatchKL
	t.mismatchTokens += o.mismatchTokens
}
