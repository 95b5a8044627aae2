package run

import (
	"context"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run/dataset"
	"github.com/easyrl/easyrl/trainer"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// SFT trains a model to imitate demonstrations. A cancelled context makes it write a
// checkpoint and return a StoppedError.
func SFT(ctx context.Context, resolved *configs.Resolved, opts Options) error {
	cfg := &resolved.Config
	j := newJob(resolved, opts, task{name: "sft", key: "sft.data", files: cfg.SFT.Data, steps: cfg.SFT.Steps})
	defer j.close()
	if err := oneRank(cfg); err != nil {
		return err
	}
	from, err := j.claimDir()
	if err != nil {
		return err
	}
	if j.folder, err = openFolder(cfg); err != nil {
		return err
	}
	demos, err := j.readDemonstrations()
	if err != nil {
		return err
	}
	if err := j.open(from, demos.count, trimodel.Config{Temperature: 1, Recompute: cfg.Train.Recompute}); err != nil {
		return err
	}
	j.announce(from)
	if err := j.openDir(); err != nil {
		return err
	}
	j.openConsole()
	if err := j.openMonitor(); err != nil {
		return err
	}
	t, err := trainer.NewSFT(trainer.Config{
		Dir: cfg.Run.Dir, Steps: cfg.SFT.Steps, PromptsPerStep: cfg.SFT.BatchSize,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: 1, Optim: cfg.Train.Config,
		CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every,
	}, j.state, trainer.Deps{
		Models: j.models, Files: j.folder.Files, Metrics: j.metrics, Progress: j.progress, Warn: j.warn,
	}, demos.Demonstrations)
	if err != nil {
		return err
	}
	err = t.Run(ctx)
	return j.finish(t.Step(), err)
}

// demonstrations are the training and held-out examples of supervised training.
type demonstrations struct {
	trainer.Demonstrations
	count int // in the files
}

func (j *job) readDemonstrations() (*demonstrations, error) {
	cfg := j.cfg
	reader := dataset.New(j.folder, cfg, 0, j.warn)
	lists, err := reader.Demonstrations(cfg.SFT.Data)
	if err != nil {
		return nil, err
	}
	held, err := reader.HeldOut()
	if err != nil {
		return nil, err
	}
	sizes := make([]int, len(lists))
	for k := range lists {
		sizes[k] = len(lists[k])
	}
	order, err := data.NewMix(sizes, nil, cfg.Run.Seed, cfg.Data.Shuffle)
	if err != nil {
		return nil, usage.Wrap(err)
	}
	all := slices.Concat(lists...)
	return &demonstrations{count: len(all), Demonstrations: trainer.Demonstrations{
		Example: func(i int) trainer.Demonstration { return all[order.At(i)] }, Held: held}}, nil
}
