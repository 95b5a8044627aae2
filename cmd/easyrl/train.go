package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/run"
)

func trainVerb(std streams) cli.Verb {
	return trainingVerb(std, configs.TrainTask, run.Train, cli.Verb{
		Name:    "train",
		Summary: "Train a model with reinforcement learning.",
		Example: `easyrl train configs/quickstart.toml -set run.steps=10 -set run.dir=runs/try
			easyrl train run.toml -resume`,
	})
}

func sftVerb(std streams) cli.Verb {
	return trainingVerb(std, configs.SFTTask, run.SFT, cli.Verb{
		Name: "sft",
		Summary: "Train a model to imitate demonstrations: prompts with responses, or conversations, in JSON lines, " +
			"JSON or Parquet.",
		Example: "easyrl sft configs/quickstart-sft.toml",
	})
}

// trainingVerb completes v, a verb that trains: it sets the synopsis, the flags and Run.
func trainingVerb(std streams, task configs.Task, train func(context.Context, *configs.Resolved, run.Options) error,
	v cli.Verb) cli.Verb {
	v.Synopsis = "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume]"
	v.Flags = cli.NewFlags()
	set := addSettings(v.Flags)
	resume := v.Flags.Bool("resume", false, "continue from the run's newest valid checkpoint")
	v.Run = func(ctx context.Context, args []string) error {
		resolved, err := loadRun(task, args, set)
		if err != nil {
			return err
		}
		follows := func() { cli.OnSignal(ctx, "this rank continues until rank 0 ends") } // not "stopping cleanly"
		return train(ctx, resolved, run.Options{Files: args, Resume: *resume, Command: v.Words(args, "resume"),
			Out: std.out, Log: std.err, Follows: follows})
	}
	return v
}
