package run

import (
	"context"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run/dataset"
	"github.com/easyrl/easyrl/run/memory"
	"github.com/easyrl/easyrl/trainer"
)

// SFT trains a model to imitate demonstrations. A cancelled context makes it return a
// StoppedError, after writing a checkpoint if training has begun.
func SFT(ctx context.Context, resolved *configs.Resolved, opts Options) error {
	if follows, err := follow(ctx, &resolved.Config, &opts, false); follows || err != nil {
		return err
	}
	cfg := &resolved.Config
	j := newJob(resolved, opts, taskOf(cfg, configs.SFTTask))
	defer j.close()
	if err := j.openSFT(ctx); err != nil {
		return j.unbegun(ctx, err)
	}
	t, err := trainer.NewSFT(trainer.Config{
		Dir: cfg.Run.Dir, Steps: cfg.SFT.Steps, PromptsPerStep: cfg.SFT.BatchSize,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: 1, Optim: cfg.Train.Config,
		CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every,
	}, j.state, trainer.Deps{
		Models: j.models, Files: j.folder.Files, Metrics: j.metrics, Traffic: j.traffic, Progress: j.progress,
		Warn: j.warn,
	}, j.demos)
	if err != nil {
		return err
	}
	err = t.Run(ctx)
	return j.finish(t.Step(), err)
}

// openSFT prepares the run before it changes anything in the run's folder.
func (j *job) openSFT(ctx context.Context) error {
	if err := j.read(ctx); err != nil {
		return err
	}
	if err := j.try(ctx); err != nil {
		return err
	}
	if err := j.open(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil { // a stopped run leaves no folder
		return context.Cause(ctx)
	}
	j.announce()
	if err := j.openDir(); err != nil {
		return err
	}
	j.openConsole()
	return j.openMonitor()
}

// readDemonstrations reads the demonstrations to train and to evaluate on.
func (p *preparation) readDemonstrations(ctx context.Context) error {
	cfg := p.cfg
	p.reader = dataset.New(p.folder, cfg, 0, p.warn)
	lists, err := p.reader.Demonstrations(ctx, cfg.SFT.Data)
	if err != nil {
		return err
	}
	if p.demos.HeldOut, err = p.reader.HeldOut(ctx); err != nil {
		return err
	}
	sizes := make([]int, len(lists))
	for k := range lists {
		sizes[k] = len(lists[k])
	}
	order, err := data.NewMix(sizes, nil, cfg.Run.Seed, cfg.Data.Shuffle)
	if err != nil {
		return usage.Wrap(err)
	}
	all := slices.Concat(lists...)
	p.examples = len(all)
	p.tokens = memory.Demonstrations(all, cfg.SFT.BatchSize)
	dataset.WarnRepeats(p.warn, cfg.SFT.BatchSize, p.examples, "sft.batch_size", "sft.data")
	dataset.WarnHeldOut(p.warn, all, p.demos.HeldOut)
	p.demos.Example = func(i int) trainer.Demonstration { return all[order.At(i)] }
	return nil
}
