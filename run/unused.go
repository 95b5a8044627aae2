package run

import (
	"fmt"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
)

// effectRule says whether keys have no effect with the values of other keys.
type effectRule struct {
	keys []string
	idle bool   // the keys have no effect
	why  string // reason if idle
}

// unusedSettings returns warnings: one for each key that is set to another value than its default but
// has no effect on a task, and one for each value that makes others pointless.
func unusedSettings(r *configs.Resolved, task configs.Task) (lines []string) {
	base := configs.Resolved{Config: configs.Default()}
	defaults, values := base.Values(""), r.Values("")
	for _, rule := range effectRules(&r.Config, task) {
		for _, key := range rule.keys {
			if rule.idle && r.Origin(key).File != "" && values[key] != defaults[key] {
				lines = append(lines, fmt.Sprintf("%s = %s has no effect: %s", key, values[key], rule.why))
			}
		}
	}
	return append(lines, pointlessValues(&r.Config, task)...)
}

// unusedKeys returns the keys that have no effect on a task, whatever their values.
func unusedKeys(c *configs.Config, task configs.Task) (keys []string) {
	for _, rule := range effectRules(c, task) {
		if rule.idle {
			keys = append(keys, rule.keys...)
		}
	}
	return keys
}

// effectRules returns the rules for the keys of a task.
func effectRules(c *configs.Config, task configs.Task) []effectRule {
	m := c.Parallel.Mesh()
	all := []effectRule{
		{[]string{"train.min_lr"}, c.Train.Schedule == optim.Constant,
			fmt.Sprintf("train.schedule is %q, which never lowers the rate", optim.Constant)},
		{[]string{"parallel.zero"}, m.DP == 1, "parallel.dp is 1"},
		{[]string{"parallel.reduce", "parallel.sequence"}, m.TP == 1, "parallel.tp is 1"},
		{[]string{"parallel.token_file"}, m.Size() == 1, "there is one rank"},
	}
	if task != configs.TrainTask {
		return all
	}
	servers := c.Inference.Kind != configs.Embedded || c.Control.Listen != ""
	return append(all,
		effectRule{[]string{"train.swap"}, c.Device.Kind == configs.CPU,
			fmt.Sprintf("device.kind is %q, whose memory is the host's", configs.CPU)},
		effectRule{[]string{"train.swap"}, c.Device.Kind != configs.CPU && c.Inference.Instances == 0,
			"the run has no embedded instances"},
		effectRule{[]string{"loss.kl"}, c.Loss.Beta == 0, "loss.beta is 0"},
		effectRule{[]string{"loss.correction_high"}, c.Loss.Correction == loss.NoCorrection,
			fmt.Sprintf("loss.correction is %q", loss.NoCorrection)},
		effectRule{[]string{"loss.epsilon_low", "loss.epsilon_high"}, c.Loss.Kind == loss.REINFORCE,
			fmt.Sprintf("loss.kind is %q, which has no clip", c.Loss.Kind)},
		effectRule{[]string{"loss.dual_clip"}, c.Loss.Kind == loss.REINFORCE || c.Loss.Kind == loss.CISPO,
			fmt.Sprintf("loss.kind is %q", c.Loss.Kind)},
		effectRule{[]string{"inference.weights_dir", "inference.token_file"}, !servers, "the run has no servers"},
		effectRule{[]string{"control.token_file"}, c.Control.Listen == "", "control.listen is not set"},
		effectRule{[]string{"eval.k", "eval.temperature", "eval.top_p", "eval.top_k", "eval.prompts"},
			len(c.Data.Eval) == 0, "data.eval is not set"},
		effectRule{[]string{"data.system", "data.thinking"}, c.Data.Template == configs.TemplateNone,
			fmt.Sprintf("data.template is %q", configs.TemplateNone)},
	)
}

// pointlessValues returns lines about values that make others pointless.
func pointlessValues(c *configs.Config, task configs.Task) (lines []string) {
	key, steps := "run.steps", c.Run.Steps
	if task == configs.SFTTask {
		key, steps = "sft.steps", c.SFT.Steps
	}
	if c.Train.Warmup > steps {
		lines = append(lines,
			fmt.Sprintf(
				"train.warmup is %d and %s is %d, so the learning rate never gets to train.lr. Lower train.warmup",
				c.Train.Warmup, key, steps))
	}
	if c.Train.LR == 0 {
		lines = append(lines, "train.lr is 0, so the weights stay as they are")
	}
	return lines
}
