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

// values is a step's line in metrics.jsonl.
func (t *Trainer) values(s *step, stats rollout.Stats) report.Values {
	a, c := &s.all, &s.clock
	wall := c.all.Seconds()
	tokens := float64(a.promptTokens + a.responseTokens)
	v := report.Values{
		"step": float64(s.step), "version": float64(s.version), "time": unixNow(),
		"actor/loss": s.loss / float64(max(s.updates, 1)), "actor/pg_loss": s.pg / float64(max(s.updates, 1)),
		"actor/grad_norm": s.norm, "actor/lr": s.lr,
		"staleness/max": 0, // every group was checked to be of the step's version
		"timing_s/step": wall, "timing_s/publish": c.publish.Seconds(), "timing_s/first_group": c.firstGroup.Seconds(),
		"timing_s/wait": c.wait.Seconds(), "timing_s/train": c.train.Seconds(), "timing_s/optimizer": c.optimizer.Seconds(),
		"timing_s/sample":                   stats.Busy.Seconds() / float64(max(stats.Instances, 1)),
		"idle/trainer":                      c.wait.Seconds() / wall,
		"idle/instances":                    max(0, 1-stats.Busy.Seconds()/(wall*float64(max(stats.Instances, 1)))),
		"perf/tokens_per_second":            tokens / wall,
		"perf/tokens_per_second_per_device": tokens / wall / float64(t.cfg.Devices),
		"tokens/prompt":                     float64(a.promptTokens), "tokens/response": float64(a.responseTokens), "tokens/computed": float64(a.rows),
		"fleet/size": float64(stats.Instances), "fleet/retries": float64(stats.Retries), "fleet/hedges": float64(stats.Hedges),
		"reward/retries": float64(stats.RewardRetries),
		"groups/trained": float64(a.groups), "groups/failed": float64(s.failed),
		"memory/peak_bytes": float64(report.PeakMemory()),
	}
	if t.cfg.Refill {
		v["groups/refilled"] = float64(len(stats.Replaced))
		a.sampledMean(v, stats.Replaced)
	}
	if t.cfg.PeakFLOPS > 0 {
		v["perf/mfu"] = a.flops / wall / t.cfg.PeakFLOPS
	}
	a.means(v, t.cfg.Loss.Correction != loss.NoCorrection)
	if t.cfg.BySource {
		a.bySource(v)
	}
	for purpose, bytes := range t.Models.Allocated() {
		v["memory/"+npu.Purpose(purpose).String()+"_bytes"] = float64(bytes)
	}
	return v
}

// means adds to v what is known per group, response or token. What nothing was
// there for is left out: a step of which no response went through the models, as
// where all rewards of each group are equal, has no entropy, and it is not 0.
func (t *tally) means(v report.Values, corrected bool) {
	if n := float64(t.groups); n > 0 {
		v["reward/zero_std_frac"] = float64(t.zeroStd) / n
		v["prompt_length/mean"] = float64(t.prompts) / n
	}
	if n := float64(t.responses); n > 0 {
		mean := t.rewards / n
		v["reward/mean"], v["reward/std"] = mean, math.Sqrt(max(0, t.rewardSquares-n*mean*mean)/max(n-1, 1))
		v["response_length/mean"], v["response_length/max"] = float64(t.responseTokens)/n, float64(t.longest)
		v["response_length/clip_ratio"] = float64(t.clipped) / n
		t.components(v)
	}
	if n := float64(t.computed); n > 0 {
		v["actor/kl"], v["actor/entropy"], v["actor/clip_frac"] = t.kl/n, t.entropy/n, t.clip/n
		if corrected {
			v["mismatch/corrected_frac"] = t.corrected / n
		}
	}
	if n := float64(t.mismatchTokens); n > 0 {
		v["mismatch/logprob_abs_max"], v["mismatch/kl"] = t.mismatchMax, t.mismatchKL/n
	}
}

// sampledMean adds the mean reward of all that was sampled, of groups that were
// replaced too: reward/mean is of those that were trained, which are chosen by
// their rewards. A component of the reward cannot have its name.
func (t *tally) sampledMean(v report.Values, replaced []rollout.Group) {
	sum, n := t.rewards, t.responses
	for i := range replaced {
		for _, r := range replaced[i].Responses {
			sum += r.Reward
			n++
		}
	}
	if n > 0 {
		v["reward/sampled_mean"] = sum / float64(n)
	}
}

// components adds the means of the reward's components.
func (t *tally) components(v report.Values) {
	for name, p := range t.parts {
		v["reward/"+name+"/mean"] = p.sum / float64(p.n)
	}
}

// bySource adds the mean reward of each data source that the step had, apart
// from the reward's components, which may have any name after "reward/".
func (t *tally) bySource(v report.Values) {
	for name, p := range t.sources {
		v["reward_by_source/"+name+"/mean"] = p.sum / float64(p.n)
	}
}
