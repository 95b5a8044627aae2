package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/reward"
)

func TestAbout(t *testing.T) {
	t.Parallel()
	cfg := configs.Default()
	cfg.Run.Name, cfg.Run.Mode, cfg.Model.Path = "r", "sync", "models/m"
	cfg.Loss.Kind, cfg.Loss.Advantage, cfg.Loss.Aggregation = "gspo", "group", "token-mean"
	cfg.Reward.Kind = "math"
	require.Equal(t, report.About{Name: "r", Task: "train", Mode: "sync", Model: "models/m", Parameters: 7,
		Tokenizer: "models/m",
		Objective: "gspo, advantages by group, token-mean", Reward: "math"}, about(&cfg, "train", 7))

	cfg.Loss.Beta, cfg.Loss.KL = .02, "k3"
	cfg.Model.Path, cfg.Model.Init.Config = "", "shape/config.json"
	cfg.Reward.Kind = "sum"
	cfg.Reward.Parts = map[string]*reward.Part{"b": {}, "a": {}}
	exact := reward.DefaultRule()
	exact.Kind = "exact"
	cfg.Reward.Sources = map[string]*reward.Rule{"gsm8k": &exact}
	a := about(&cfg, "train", 7)
	require.Equal(t, "gspo, advantages by group, token-mean, k3 penalty 0.02", a.Objective)
	require.Equal(t, "sum of a, b; gsm8k: exact", a.Reward)
	require.Equal(t, "shape/config.json", a.Model)
	require.Equal(t, "shape", a.Tokenizer)

	a = about(&cfg, "sft", 7)
	require.Equal(t, "cross-entropy of demonstrations", a.Objective)
	require.Empty(t, a.Reward+a.Mode)
}
