package run

import (
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/producer"
)

// newProducer returns the run's producer. In periodic-async mode the trainer gets each group when it is finished;
// in the other modes a gate holds a step's groups until all are finished.
func (t *training) newProducer() (*producer.Producer, error) {
	cfg, in := t.cfg, t.instances.Fleet()
	r := &cfg.Rollout
	pc := producer.DefaultConfig()
	pc.Gate, pc.DynamicSampling = cfg.Run.Mode != configs.PeriodicAsync, r.DynamicSampling
	pc.GroupSize, pc.Seed, pc.MaxFailed = r.GroupSize, cfg.Run.Seed, producer.Budget(r.PromptsPerStep)
	if !t.reward.External() {
		pc.Scoring = 1 // one response of a group at a time: several groups already keep all cores busy
	}
	if r.DynamicSampling > 0 && cfg.Loss.Advantage == loss.BatchAdvantage {
		t.warn("rollout.dynamic_sampling = %d replaces no prompt with loss.advantage = %q: "+
			"every group may have a signal",
			r.DynamicSampling, cfg.Loss.Advantage)
	}
	pc.Sampling = inference.Sampling{Temperature: float32(r.Temperature), TopP: float32(r.TopP), TopK: r.TopK,
		MaxTokens: r.MaxTokens, Stop: r.Stop, StopIDs: t.folder.StopIDs}
	return producer.New(pc, producer.Deps{Fleet: in, Reward: t.reward, Text: t.folder.Text, Spare: t.spare,
		Signal: cfg.Loss.MaySignal, Warn: t.warn, Lanes: t.spans.Lanes(producerRow),
		Counters: func() producer.Counters {
			status := in.Status()
			return producer.Counters{Busy: status.Busy, Instances: status.Size, Retries: status.Retries,
				RewardRetries: t.reward.Retries()}
		}})
}
