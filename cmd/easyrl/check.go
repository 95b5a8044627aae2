package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/run"
)

func checkVerb(std streams) cli.Verb {
	v := cli.Verb{
		Name:     "check",
		Synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …]",
		Summary:  "Print the resolved run: every value and which file set it, memory by purpose, ranks.",
		Example: `easyrl check configs/quickstart.toml
			easyrl check run.toml more-steps.toml -set rollout.group_size=16`,
		Flags: cli.NewFlags(),
	}
	set := addSettings(v.Flags)
	v.Run = func(_ context.Context, args []string) error {
		resolved, err := loadRun(configs.AnyTask, args, set)
		if err != nil {
			return err
		}
		return run.Explain(std.out, resolved)
	}
	return v
}
