package main

import (
	"context"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/run/score"
)

func scoreVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "score",
		Synopsis: "[RUN.toml OVERLAY.toml …] [-reward KIND] [-set section.key=value …] [-out FILE] [FILE …]",
		Summary:  "Score existing responses: JSON lines, a run's rollouts or the record of an evaluation.",
		Example: `echo '{"prompt":"12+34=","answer":"46","response":"The answer is 46."}' | easyrl score -reward math
			easyrl score runs/mine/run.toml runs/mine/rollouts/step-000100.jsonl
			easyrl score -reward math -out scores.jsonl eval.jsonl`,
		Flags: cli.NewFlags(),
	}
	var data cli.List
	set := addSettings(v.Flags)
	addRewardFlags(v.Flags, &configs.Config{})
	out := v.Flags.String("out", "", "`FILE` write the scores to this file instead of standard output")
	v.Flags.Var(&data, "data", "`FILE` JSON lines, like an argument; - is standard input, the default; may be repeated")
	v.Run = func(ctx context.Context, args []string) error {
		var runs []string
		for _, arg := range args {
			if strings.HasSuffix(arg, ".toml") {
				runs = append(runs, arg)
			} else {
				data.Values = append(data.Values, arg)
			}
		}
		resolved, err := run.Load(configs.ScoreTask, runs, slices.Concat(set.Values, rewardKeys(v.Flags)))
		if err != nil {
			return err
		}
		if len(runs) == 0 && resolved.Origin("reward.kind").File == "" && len(resolved.Reward.Sources) == 0 {
			return usage.Errorf("score: no reward given, expected RUN.toml or -reward KIND (see easyrl score -h)")
		}
		counts, err := score.Run(ctx, resolved, score.Options{Files: data.Values, In: std.in, Path: *out, Out: std.out,
			Warn: func(format string, args ...any) { notice.Print(std.err, notice.Warning, format, args...) }})
		if err != nil {
			return err
		}
		notice.Print(std.err, notice.Progress, "%s", &counts)
		return counts.Err()
	}
	return v
}
