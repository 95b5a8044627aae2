package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
)

func checkVerb(std streams) verb {
	v := verb{
		name:     "check",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …]",
		summary:  "Print the resolved run: every value and which file set it.",
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
		return resolved.Explain(std.out)
	}
	return v
}
