package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/run"
)

func checkVerb(std streams) verb {
	v := verb{
		name:     "check",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …]",
		summary:  "Print the resolved run: every value and which file set it, memory by purpose, ranks.",
		example: `easyrl check configs/quickstart.toml
			easyrl check run.toml more-steps.toml -set rollout.group_size=16`,
		flags: newFlags(),
	}
	set := addSettings(v.flags)
	v.run = func(_ context.Context, args []string) error {
		resolved, err := loadRun(configs.AnyTask, args, *set)
		if err != nil {
			return err
		}
		return run.Explain(std.out, resolved)
	}
	return v
}
