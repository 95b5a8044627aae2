package main

import (
	"context"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/run"
)

func trainVerb(std streams) verb {
	return trainingVerb(std, configs.TrainTask, run.Train, verb{
		name:    "train",
		summary: "Train a model with reinforcement learning, as a configuration says.",
		example: `easyrl train configs/quickstart.toml -set run.steps=10 -set run.dir=runs/try
			easyrl train run.toml -resume`,
	})
}

func sftVerb(std streams) verb {
	return trainingVerb(std, configs.SFTTask, run.SFT, verb{
		name:    "sft",
		summary: "Train a model to imitate demonstrations: prompts with responses, or conversations, in JSON lines, JSON or Parquet.",
		example: "easyrl sft configs/quickstart-sft.toml",
	})
}

// trainingVerb completes a verb that runs a configuration from files, settings and
// checkpoints.
func trainingVerb(std streams, task configs.Task, train func(context.Context, *configs.Resolved, run.Options) error, v verb) verb {
	v.synopsis = "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume]"
	v.flags = newFlags()
	set := addSettings(v.flags)
	resume := v.flags.Bool("resume", false, "continue from the run's newest valid checkpoint")
	v.run = func(ctx context.Context, args []string) error {
		resolved, err := loadRun(task, args, *set)
		if err != nil {
			return err
		}
		return train(ctx, resolved, run.Options{Files: args, Resume: *resume, Out: std.out, Log: std.err})
	}
	return v
}
