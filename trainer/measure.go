package trainer

import (
	"math"

	"github.com/easyrl/easyrl/internal/rounded"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

// measureGroup adds the metrics of a group taken for training to m. rewards are the rewards of its responses.
func (r *rollouts) measureGroup(m *metrics, g *rollout.Group, rewards []float64) {
	prompt := float64(len(g.Prompt.IDs))
	m.Sum("groups/trained", 1)
	m.Share("reward/zero_std_frac", loss.Equal(rewards))
	m.Mean("prompt_length/mean", prompt, 1)
	for i := range g.Responses {
		response := &g.Responses[i]
		tokens := float64(response.Spans.Count(rollout.IsPolicy))
		m.Sum("tokens/prompt", prompt)
		m.Sum("tokens/response", tokens)
		for k := range response.Spans {
			if s := &response.Spans[k]; rollout.IsPolicy(s) {
				m.Max("staleness/max", float64(int64(g.Step)-s.Version))
			}
		}
		m.Mean("response_length/mean", tokens, 1)
		m.Max("response_length/max", tokens)
		// measurePass adds the clipped tokens
		m.Mean("actor/clip_frac", 0, float64(response.Spans.Count(rollout.IsTrained)))
		m.Share("response_length/clip_ratio", response.Finish == rollout.Length)
		m.Mean("reward/mean", response.Reward, 1)
		m.Std("reward/std", response.Reward)
		if r.BySource {
			m.Mean("reward_by_source/"+g.Prompt.Source+"/mean", response.Reward, 1)
		}
		for name, v := range response.Parts {
			m.Mean("reward/"+name+"/mean", v, 1)
		}
	}
}

// measurePass adds the metrics of a micro-batch's pass through the models to m.
func (r *rollouts) measurePass(m *metrics, result *loss.Result, entropy []float32) {
	tokens := float64(result.Tokens)
	m.MeanOf("actor/kl", &result.KL, tokens)
	m.Mean("actor/clip_frac", float64(result.Clipped), 0) // measureGroup has counted the tokens
	if r.Loss.Correction != loss.NoCorrection {
		m.Mean("mismatch/corrected_frac", float64(result.Corrected), tokens)
	}
	for _, e := range entropy {
		m.Mean("actor/entropy", float64(e), 1)
	}
}

// measureMismatch compares the trainer's recomputed log-probabilities with those that the sampler recorded.
// mismatch/kl is the k3 estimate (Schulman 2020) of KL(instance || trainer).
func measureMismatch(m *metrics, recomputed, behaviour []float32) {
	for i, lp := range recomputed {
		d := float64(lp) - float64(behaviour[i])
		m.Max("mismatch/logprob_abs_max", math.Abs(d))
		m.Mean("mismatch/kl", rounded.Expm1(d)-d, 1)
	}
}

// measureSampled adds the mean reward of all sampled responses, including those of replaced groups. In
// contrast, reward/mean covers only trained groups, which are selected by their rewards. The metric's name
// cannot collide with a reward component's, reward/<component>/mean.
func measureSampled(m *metrics, replaced []rollout.Group) {
	sum, n := m.totals("reward/mean")
	m.Mean("reward/sampled_mean", sum, n)
	for i := range replaced {
		for _, r := range replaced[i].Responses {
			m.Mean("reward/sampled_mean", r.Reward, 1)
		}
	}
}

// record adds to the step's line how the step was sampled, and logs its groups.
func (r *rollouts) record(s *step, line report.Values) error {
	c, stats := &s.clock, &r.sampling.stats
	wall, busy, instances := c.all.Seconds(), stats.Busy.Seconds(), float64(max(stats.Instances, 1))
	prompt, _ := s.metrics.totals("tokens/prompt")
	response, _ := s.metrics.totals("tokens/response")
	line["version"] = float64(s.number)
	line["timing_s/publish"], line["timing_s/first_group"] = c.publish.Seconds(), c.firstGroup.Seconds()
	line["timing_s/wait"], line["timing_s/train"] = c.wait.Seconds(), c.train.Seconds()
	line["timing_s/optimizer"], line["timing_s/sample"] = c.optimizer.Seconds(), busy/instances
	line["idle/trainer"], line["idle/instances"] = c.wait.Seconds()/wall, max(0, 1-busy/(wall*instances))
	rate := (prompt + response) / wall
	line["perf/tokens_per_second"] = rate
	line["perf/tokens_per_second_per_device"] = rate / float64(max(1, r.Ranks)+stats.Instances)
	if r.Cores != nil {
		if cores := float64(r.Cores()); cores > 0 {
			line["perf/cores"], line["perf/tokens_per_second_per_core"] = cores, rate/cores
		}
	}
	if r.PeakFLOPS > 0 {
		line["perf/mfu"] = s.flops / wall / r.PeakFLOPS
	}
	line["fleet/size"], line["fleet/retries"] = float64(stats.Instances), float64(stats.Retries)
	line["reward/retries"] = float64(stats.RewardRetries + r.sampling.resampled.RewardRetries)
	line["groups/failed"], line["groups/resampled"] = float64(r.sampling.failed+r.sampling.resampled.Failed),
		float64(r.sampling.resampled.Groups)
	if r.DynamicSampling {
		replaced := r.sampling.replaced()
		line["groups/refilled"] = float64(len(replaced))
		measureSampled(&s.metrics, replaced)
	}
	for _, name := range []string{"groups/trained", "tokens/prompt", "tokens/response", "tokens/computed"} {
		s.metrics.Sum(name, 0) // 0 in a step without groups
	}
	for purpose, bytes := range r.t.Models.Allocated() {
		line["memory/"+npu.Purpose(purpose).String()+"_bytes"] = float64(bytes)
	}
	if err := r.log(s.number); err != nil || r.Leaves == nil {
		return err
	}
	return r.Leaves(s.number, s.sums)
}
