// Package produce configures a run's producer.
package produce

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// New returns a producer that samples with the given fleet and scores with the
// given reward. spare is an endless sequence of replacement prompts for dynamic
// sampling. The gate is open only in periodic-async mode; otherwise the trainer gets a
// step's groups once all of them are finished.
func New(cfg *configs.Config, f *folder.Folder, in *fleet.Fleet, lanes trace.Track, spare func(place int) rollout.Prompt,
	score *reward.Scorer, warn func(format string, args ...any)) (*producer.Producer, error) {
	r := &cfg.Rollout
	pc := producer.DefaultConfig()
	pc.Gate, pc.DynamicSampling = cfg.Run.Mode != configs.PeriodicAsync, r.DynamicSampling
	pc.GroupSize, pc.Seed, pc.MaxFailed = r.GroupSize, cfg.Run.Seed, producer.Budget(r.PromptsPerStep)
	if !score.External() {
		pc.Scoring = 1 // the groups are enough to share among the cores
	}
	if r.DynamicSampling > 0 && cfg.Loss.Advantage == loss.BatchAdvantage {
		warn("rollout.dynamic_sampling = %d replaces no prompt with loss.advantage = %q: every group may have a signal", r.DynamicSampling, cfg.Loss.Advantage)
	}
	pc.Sampling = inference.Sampling{Temperature: float32(r.Temperature), TopP: float32(r.TopP), TopK: r.TopK,
		MaxTokens: r.MaxTokens, Stop: r.Stop, StopIDs: f.StopIDs}
	return producer.New(pc, producer.Deps{Fleet: in, Reward: score, Text: f.Text, Spare: spare, Signal: cfg.Loss.MaySignal, Warn: warn, Lanes: lanes,
		Counters: func() producer.Counters {
			status := in.Status()
			return producer.Counters{Busy: status.Busy, Instances: status.Size, Retries: status.Retries,
				RewardRetries: score.Retries()}
		}})
}
