package run

import (
	"context"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/roster"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// produce is how a run samples its periods: with its fleet, scored by its
// reward, and lanes as its rows. Unless the mode is periodic-async, the gate is closed: the trainer
// gets nothing before the period is whole. another is the endless order of the
// prompts that replace those of which nothing can be learned.
func produce(cfg *configs.Config, f *folder.Folder, in *roster.Roster, lanes trace.Track, another func(place int) rollout.Prompt,
	score *reward.Scorer, warn func(format string, args ...any)) (func(context.Context, rollout.Batch) rollout.Stream, error) {
	pc := producer.DefaultConfig()
	pc.Order, pc.Gate, pc.Refill = cfg.Train.Order, cfg.Run.Mode != configs.PeriodicAsync, cfg.Rollout.Refill
	pc.Lanes = lanes
	pc.MaxFailed = producer.Budget(cfg.Rollout.PromptsPerStep)
	p, err := producer.New(pc, in.Fleet(), score, f.Text)
	if err != nil {
		return nil, err
	}
	r := &cfg.Rollout
	sampling := inference.Sampling{Temperature: float32(r.Temperature), TopP: float32(r.TopP), TopK: r.TopK, MinP: float32(r.MinP),
		MaxTokens: r.MaxTokens, Stop: r.Stop, StopIDs: f.StopIDs}
	var tried int64 // retries of the reward up to the last period's end, evaluations included
	return func(ctx context.Context, period rollout.Batch) rollout.Stream {
		s := &production{groups: make(chan rollout.Group, len(period.Prompts))}
		busy, before := in.Busy(), in.Fleet().Status()
		s.run.Go(func() {
			sum, err := p.Run(ctx, producer.Period{Step: period.Step, Version: period.Version, Prompts: period.Prompts,
				GroupSize: r.GroupSize, Sampling: sampling, Seed: cfg.Run.Seed,
				Another: func(index, attempt int) rollout.Prompt {
					return another(((period.Step-1)*r.Refill+attempt-1)*len(period.Prompts) + index)
				}}, s.groups)
			for _, failed := range sum.Failed {
				warn("step %d: gave up %v", period.Step, failed.Err)
			}
			scored := tried
			tried = score.Retries()
			status := in.Fleet().Status()
			s.stats, s.err = rollout.Stats{Busy: in.Busy() - busy, Instances: status.Size,
				Retries: status.Retries - before.Retries, Hedges: status.Hedges - before.Hedges,
				Failed: len(sum.Failed), Replaced: sum.Replaced, RewardRetries: tried - scored}, err
		})
		return s
	}, nil
}

// production is a period being sampled.
type production struct {
	groups chan rollout.Group
	run    conc.WaitGroup
	stats  rollout.Stats // set before run ends
	err    error
}

// Groups are the finished groups.
func (s *production) Groups() <-chan rollout.Group { return s.groups }

// Wait returns when nothing of the period runs any more.
func (s *production) Wait() (rollout.Stats, error) {
	s.run.Wait()
	return s.stats, s.err
}
