package main

import (
	"context"
	"errors"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/trainer"
)

func sftVerb(std streams) verb {
	v := verb{
		name:     "sft",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume]",
		summary:  "Train a model to imitate demonstrations: JSON lines of prompt and response.",
		example:  "easyrl sft configs/quickstart-sft.toml",
		flags:    newFlags(),
	}
	set := addSettings(v.flags)
	resume := v.flags.Bool("resume", false, "continue from the run's newest valid checkpoint")
	v.run = func(ctx context.Context, args []string) error {
		resolved, err := loadRun(configs.SFTTask, args, *set)
		if err != nil {
			return err
		}
		return sft(ctx, std, resolved, args, *resume)
	}
	return v
}

func sft(ctx context.Context, std streams, resolved *configs.Resolved, files []string, resume bool) error {
	cfg := &resolved.Config
	r := &trainRun{cfg: cfg, std: std, task: sftTask}
	defer r.close()
	if err := oneRank(cfg); err != nil {
		return err
	}
	from, err := claimDir(resolved, files, resume, r.warn)
	if err != nil {
		return err
	}
	f, err := policyFolder(cfg)
	if err != nil {
		return err
	}
	examples, err := f.examples(cfg)
	if err != nil {
		return err
	}
	r.folder = f
	if err := r.openModels(from); err != nil {
		return err
	}
	r.announce(from, cfg.SFT.Steps)
	if err := r.openDir(resolved); err != nil {
		return err
	}
	console := report.NewConsole(std.err, r.state.Step, cfg.SFT.Steps)
	defer console.Close()
	order := data.NewOrder(len(examples), cfg.Run.Seed, cfg.Data.Shuffle)
	s := &trainer.SFT{
		Config: trainer.SFTConfig{Dir: cfg.Run.Dir, Steps: cfg.SFT.Steps, BatchSize: cfg.SFT.BatchSize,
			MicroBatchTokens: cfg.Train.MicroBatchTokens, Optim: cfg.Train.Config,
			CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep},
		Models: r.models, Example: func(i int) trainer.Example { return examples[order.At(i)] }, Files: f.files,
		Metrics: r.metrics, Progress: func(_ int, values report.Values) { console.Step(values) },
	}
	err = s.Run(ctx, r.state)
	if errors.Is(err, trainer.ErrStopped) {
		return stopped(cfg.Run.Dir, s.Step())
	}
	return err
}
