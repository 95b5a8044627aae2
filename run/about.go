package run

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/reward"
)

// about describes a run for its report. task is train or sft, parameters the model's number of parameters.
func about(cfg *configs.Config, task string, parameters int64) report.About {
	a := report.About{Name: cfg.Run.Name, Task: task, Model: cmp.Or(cfg.Model.Path, cfg.Model.Init.Config),
		Parameters: parameters,
		Tokenizer:  cmp.Or(cfg.Model.Path, filepath.Dir(cfg.Model.Init.Config)),
		Objective:  "cross-entropy of demonstrations"}
	if task == trainTask {
		a.Mode, a.Reward = cfg.Run.Mode, rewardText(&cfg.Reward)
		a.Objective = fmt.Sprintf("%s, advantages by %s, %s", cfg.Loss.Kind, cfg.Loss.Advantage, cfg.Loss.Aggregation)
		if cfg.Loss.Beta > 0 {
			a.Objective += fmt.Sprintf(", %s penalty %g", cfg.Loss.KL, cfg.Loss.Beta)
		}
	}
	return a
}

// rewardText describes a reward: its kind and parts, and the rewards of single data sources.
func rewardText(c *reward.Config) string {
	all := []string{}
	if c.Kind != "" {
		all = append(all, ruleText(&c.Rule))
	}
	for _, source := range slices.Sorted(maps.Keys(c.Sources)) {
		all = append(all, source+": "+ruleText(c.Sources[source]))
	}
	return strings.Join(all, "; ")
}

func ruleText(r *reward.Rule) string {
	if len(r.Parts) == 0 {
		return r.Kind
	}
	return r.Kind + " of " + strings.Join(slices.Sorted(maps.Keys(r.Parts)), ", ")
}
