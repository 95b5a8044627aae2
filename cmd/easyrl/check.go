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
		Synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume] [-sft] [-static] [-json]",
		Summary: "Try everything that a run needs without starting it, and print the resolved run: every value and " +
			"which file set it, memory, data, device.",
		Example: `easyrl check configs/quickstart.toml
			easyrl check run.toml more-steps.toml -set rollout.group_size=16 -static`,
		Flags: cli.NewFlags(),
	}
	set := addSettings(v.Flags)
	resume := v.Flags.Bool("resume", false, "check easyrl train -resume: read the run's newest valid checkpoint too")
	sft := v.Flags.Bool("sft", false, "check easyrl sft, even if data.train is set")
	static := v.Flags.Bool("static", false,
		"only read files: skip memory, device, reward and servers, as on a login node")
	asJSON := v.Flags.Bool("json", false, "print one JSON document")
	v.Run = func(ctx context.Context, args []string) error {
		task := configs.AnyTask
		if *sft {
			task = configs.SFTTask
		}
		resolved, err := loadRun(task, args, set)
		if err != nil {
			return err
		}
		return run.Check(ctx, resolved, run.Options{Files: args, Resume: *resume, Out: std.out, Log: std.err},
			run.CheckOptions{Task: task, Static: *static, JSON: *asJSON})
	}
	return v
}
