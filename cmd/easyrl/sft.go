package main

import (
	"context"
	"errors"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/evaluate"
	"github.com/easyrl/easyrl/trainer"
)

func sftVerb(std streams) verb {
	v := verb{
		name:     "sft",
		synopsis: "RUN.toml [OVERLAY.toml …] [-set section.key=value …] [-resume]",
		summary:  "Train a model to imitate demonstrations: prompts with responses, or conversations, in JSON lines, JSON or Parquet.",
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
	from, err := r.claimDir(resolved, files, resume)
	if err != nil {
		return err
	}
	f, err := policyFolder(cfg)
	if err != nil {
		return err
	}
	example, size, held, err := r.demonstrations(f)
	if err != nil {
		return err
	}
	r.folder = f
	if err := r.openModels(from, size); err != nil {
		return err
	}
	r.announce(from, cfg.SFT.Steps, resolved)
	if err := r.openDir(resolved); err != nil {
		return err
	}
	r.openConsole(cfg.SFT.Steps)
	if err := r.openWords(resolved); err != nil {
		return err
	}
	s := &trainer.SFT{
		Config: trainer.SFTConfig{Dir: cfg.Run.Dir, Steps: cfg.SFT.Steps, BatchSize: cfg.SFT.BatchSize,
			MicroBatchTokens: cfg.Train.MicroBatchTokens, Optim: cfg.Train.Config,
			CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every},
		Models: r.models, Example: example, Held: held, Files: f.files,
		Metrics: r.metrics, Progress: r.progress,
	}
	err = s.Run(ctx, r.state)
	r.ended(s.Step(), err)
	r.writePage(err)
	if errors.Is(err, trainer.ErrStopped) {
		return stopped(cfg.Run.Dir, s.Step())
	}
	return err
}

// demonstrations are those to train on, in their endless order, how many there are,
// and the sets that are held out.
func (r *trainRun) demonstrations(f *folder) (example func(i int) trainer.Example, size int, held []trainer.HeldOut, err error) {
	cfg := r.cfg
	lists, err := f.examples(cfg.SFT.Data, cfg, r.warn)
	if err != nil {
		return nil, 0, nil, err
	}
	if held, err = f.heldOut(cfg, r.warn); err != nil {
		return nil, 0, nil, err
	}
	sizes := make([]int, len(lists))
	for k := range lists {
		sizes[k] = len(lists[k])
	}
	order, err := data.NewMix(sizes, cfg.SFT.Weights, cfg.Run.Seed, cfg.Data.Shuffle)
	if err != nil {
		return nil, 0, nil, usageError{err}
	}
	all := slices.Concat(lists...)
	return func(i int) trainer.Example { return all[order.At(i)] }, len(all), held, nil
}

// heldOut reads the demonstrations that are evaluated and not trained on, the first
// eval.prompts of each set or, with 0, all.
func (f *folder) heldOut(cfg *configs.Config, warn func(format string, args ...any)) (sets []trainer.HeldOut, err error) {
	if len(cfg.SFT.Eval) == 0 {
		return nil, nil
	}
	files, err := data.Files(cfg.SFT.Eval)
	if err != nil {
		return nil, usageError{err}
	}
	lists, err := f.examples(files, cfg, warn)
	if err != nil {
		return nil, err
	}
	for _, named := range evaluate.Names(files) {
		set := trainer.HeldOut{Name: named.Name}
		for _, i := range named.Files {
			set.Examples = append(set.Examples, lists[i]...)
		}
		if n := cfg.Eval.Prompts; n > 0 {
			set.Examples = set.Examples[:min(n, len(set.Examples))]
		}
		sets = append(sets, set)
	}
	return sets, nil
}
