package trainer

import (
	"math"
	"time"

	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/report"
)

func unixNow() float64 { return float64(time.Now().UnixMilli()) / 1000 }

// values is a period's line in metrics.jsonl.
func (t *Trainer) values(p *period, stats StreamStats) report.Values {
	a, c := &p.all, &p.clock
	mean := func(sum float64, n int) float64 { return sum / float64(max(n, 1)) }
	wall := c.all.Seconds()
	rewardMean := mean(a.rewards, a.responses)
	variance := max(0, a.rewardSquares-float64(a.responses)*rewardMean*rewardMean) / float64(max(a.responses-1, 1))
	tokens := float64(a.promptTokens + a.responseTokens)
	v := report.Values{
		"step": float64(p.step), "version": float64(p.version), "time": unixNow(),
		"reward/mean": rewardMean, "reward/std": math.Sqrt(variance), "reward/zero_std_frac": mean(float64(a.zeroStd), a.groups),
		"response_length/mean": mean(float64(a.responseTokens), a.responses), "response_length/max": float64(a.longest),
		"response_length/clip_ratio": mean(float64(a.clipped), a.responses),
		"prompt_length/mean":         mean(float64(a.prompts), a.groups),
		"actor/loss":                 p.loss / float64(max(p.updates, 1)), "actor/pg_loss": p.pg / float64(max(p.updates, 1)),
		"actor/kl": mean(a.kl, a.computed), "actor/entropy": mean(a.entropy, a.computed),
		"actor/clip_frac": mean(a.clip, a.computed), "actor/grad_norm": p.norm, "actor/lr": p.lr,
		"mismatch/logprob_abs_max": a.mismatchMax, "mismatch/kl": mean(a.mismatchKL, a.mismatchTokens),
		"staleness/max": 0, // every group was checked to be of the period's version
		"timing_s/step": wall, "timing_s/publish": c.publish.Seconds(), "timing_s/first_group": c.firstGroup.Seconds(),
		"timing_s/wait": c.wait.Seconds(), "timing_s/train": c.train.Seconds(), "timing_s/optimizer": c.optimizer.Seconds(),
		"timing_s/sample":                   stats.Busy.Seconds() / float64(max(stats.Instances, 1)),
		"idle/trainer":                      c.wait.Seconds() / wall,
		"idle/instances":                    max(0, 1-stats.Busy.Seconds()/(wall*float64(max(stats.Instances, 1)))),
		"perf/tokens_per_second":            tokens / wall,
		"perf/tokens_per_second_per_device": tokens / wall / float64(t.cfg.Devices),
		"tokens/prompt":                     float64(a.promptTokens), "tokens/response": float64(a.responseTokens), "tokens/computed": float64(a.rows),
		"fleet/size": float64(stats.Instances), "fleet/retries": float64(stats.Retries),
		"groups/trained": float64(a.groups), "groups/failed": float64(p.failed),
		"memory/peak_bytes": float64(report.PeakMemory()),
	}
	if stats.Refilled > 0 {
		v["groups/refilled"] = float64(stats.Refilled)
	}
	if t.cfg.Loss.Correction != loss.NoCorrection {
		v["mismatch/corrected_frac"] = mean(a.corrected, a.computed)
	}
	if t.cfg.PeakFLOPS > 0 {
		v["perf/mfu"] = a.flops / wall / t.cfg.PeakFLOPS
	}
	for name, sum := range a.parts {
		v["reward/"+name] = mean(sum, a.responses)
	}
	for purpose, bytes := range t.Models.Allocated() {
		v["memory/"+npu.Purpose(purpose).String()+"_bytes"] = float64(bytes)
	}
	return v
}
