package trainer

import (
	"math"
	"time"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
)

func unixNow() float64 { return float64(time.Now().UnixMilli()) / 1000 }

// measureGroup measures a group that was consumed, whose rewards are shaped.
func (t *Trainer) measureGroup(m *metrics, g *rollout.Group, rewards []float64) {
	prompt := float64(len(g.Prompt.IDs))
	m.Sum("groups/trained", 1)
	m.Share("reward/zero_std_frac", loss.Equal(rewards))
	m.Mean("prompt_length/mean", prompt, 1)
	for i := range g.Responses {
		r := &g.Responses[i]
		tokens := float64(len(r.IDs))
		m.Sum("tokens/prompt", prompt)
		m.Sum("tokens/response", tokens)
		m.Mean("response_length/mean", tokens, 1)
		m.Max("response_length/max", tokens)
		m.Share("response_length/clip_ratio", r.Finish == rollout.Length)
		m.Mean("reward/mean", r.Reward, 1)
		m.Std("reward/std", r.Reward)
		if t.cfg.BySource {
			m.Mean("reward_by_source/"+g.Prompt.Source+"/mean", r.Reward, 1)
		}
		for part, v := range r.Parts {
			m.Mean("reward/"+part+"/mean", v, 1)
		}
	}
}

// measurePass measures a micro-batch that went through the models.
func (t *Trainer) measurePass(m *metrics, r *loss.Result, entropy []float32, rows int) {
	tokens := float64(r.Tokens)
	m.Sum("tokens/computed", float64(rows))
	m.Mean("actor/kl", r.KL, tokens)
	m.Mean("actor/clip_frac", r.Clipped, tokens)
	if t.cfg.Loss.Correction != loss.NoCorrection {
		m.Mean("mismatch/corrected_frac", r.Corrected, tokens)
	}
	for _, e := range entropy {
		m.Mean("actor/entropy", float64(e), 1)
	}
}

// measureMismatch compares the recomputed log-probabilities with the ones recorded
// when the tokens were sampled. Its KL is the k3 estimate (Schulman 2020) of the
// instance's distribution from the trainer's.
func measureMismatch(m *metrics, recomputed, behaviour []float32) {
	for i, lp := range recomputed {
		d := float64(lp) - float64(behaviour[i])
		m.Max("mismatch/logprob_abs_max", math.Abs(d))
		m.Mean("mismatch/kl", math.Expm1(d)-d, 1)
	}
}

// measureSampled measures all that was sampled, groups that were replaced too:
// reward/mean is of those that were trained, which are chosen by their rewards. A
// component of the reward cannot have its name.
func measureSampled(m *metrics, replaced []rollout.Group) {
	sum, n := m.totals("reward/mean")
	m.Mean("reward/sampled_mean", sum, n)
	for i := range replaced {
		for _, r := range replaced[i].Responses {
			m.Mean("reward/sampled_mean", r.Reward, 1)
		}
	}
}

// values is a step's line in metrics.jsonl.
func (t *Trainer) values(s *step, stats rollout.Stats) report.Values {
	c := &s.clock
	wall := c.all.Seconds()
	v := report.Values{
		"step": float64(s.step), "version": float64(s.version), "time": unixNow(),
		"actor/grad_norm": s.norm, "actor/lr": s.lr,
		"staleness/max": 0, // every group was checked to be of the step's version
		"timing_s/step": wall, "timing_s/publish": c.publish.Seconds(), "timing_s/first_group": c.firstGroup.Seconds(),
		"timing_s/wait": c.wait.Seconds(), "timing_s/train": c.train.Seconds(), "timing_s/optimizer": c.optimizer.Seconds(),
		"timing_s/sample": stats.Busy.Seconds() / float64(max(stats.Instances, 1)),
		"idle/trainer":    c.wait.Seconds() / wall,
		"idle/instances":  max(0, 1-stats.Busy.Seconds()/(wall*float64(max(stats.Instances, 1)))),
		"fleet/size":      float64(stats.Instances), "fleet/retries": float64(stats.Retries), "fleet/hedges": float64(stats.Hedges),
		"reward/retries": float64(stats.RewardRetries), "groups/failed": float64(s.failed),
		"memory/peak_bytes": float64(report.PeakMemory()),
	}
	if t.cfg.Refill {
		v["groups/refilled"] = float64(len(stats.Replaced))
		measureSampled(&s.metrics, stats.Replaced)
	}
	if t.cfg.PeakFLOPS > 0 {
		v["perf/mfu"] = s.flops / wall / t.cfg.PeakFLOPS
	}
	for _, name := range []string{"groups/trained", "tokens/prompt", "tokens/response", "tokens/computed"} {
		v[name] = 0 // also of a step without groups
	}
	s.metrics.into(v)
	v["perf/tokens_per_second"] = (v["tokens/prompt"] + v["tokens/response"]) / wall
	v["perf/tokens_per_second_per_device"] = v["perf/tokens_per_second"] / float64(t.cfg.Devices)
	for purpose, bytes := range t.Models.Allocated() {
		v["memory/"+npu.Purpose(purpose).String()+"_bytes"] = float64(bytes)
	}
	return v
}
