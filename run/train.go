package run

import (
	"context"
	"fmt"
	"slices"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/data"
	"github.com/easyrl/easyrl/inference/remote/publish"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/report/control"
	"github.com/easyrl/easyrl/report/control/client"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/run/dataset"
	"github.com/easyrl/easyrl/run/evaluate"
	"github.com/easyrl/easyrl/run/instances"
	"github.com/easyrl/easyrl/trainer"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// Rows of a run's trace. Each instance has a row too.
const (
	trainerRow  = "trainer"
	producerRow = "producer"
)

// Train trains a model with reinforcement learning and prints the run's folder to
// opts.Out. A cancelled context makes it write a checkpoint and return a StoppedError.
func Train(ctx context.Context, resolved *configs.Resolved, opts Options) error {
	cfg := &resolved.Config
	t := training{job: newJob(resolved, opts, task{name: "train", key: "data.train", files: cfg.Data.Train, steps: cfg.Run.Steps})}
	defer t.close()
	if err := t.open(ctx); err != nil {
		return err
	}
	return t.train(ctx)
}

// training is a job that samples: it adds prompts, a reward and instances.
type training struct {
	*job
	prompts   [][]rollout.Prompt // per file
	sets      []evaluate.Set     // held out
	reader    *dataset.Reader
	reward    *reward.Scorer
	instances *instances.Instances
	rollouts  trainer.Rollouts
}

// open reads and checks everything that the run needs before it changes anything in the
// run's folder.
func (t *training) open(ctx context.Context) error {
	if err := oneRank(t.cfg); err != nil {
		return err
	}
	from, err := t.claimDir()
	if err != nil {
		return err
	}
	if t.folder, err = openFolder(t.cfg); err != nil {
		return err
	}
	if err := t.readPrompts(); err != nil {
		return err
	}
	all := slices.Concat(t.prompts...)
	if err := t.openReward(ctx, all); err != nil {
		return err
	}
	models := trimodel.Config{OldPolicy: t.cfg.Loss.OldPolicy, Reference: t.cfg.Loss.Beta > 0,
		Temperature: float32(t.cfg.Rollout.Temperature), Recompute: t.cfg.Train.Recompute}
	if err := t.job.open(from, len(all), models); err != nil {
		return err
	}
	t.openTrace(from)
	if t.instances, err = startInstances(ctx, t.folder, t.cfg, t.opts.Fleet, instances.Deps{CanaryTokens: t.reader.CanaryTokens(),
		Spans: t.spans, Rest: lend(t.dev, t.cfg), Warn: t.warn, Dir: t.cfg.Run.Dir}); err != nil {
		return err
	}
	t.atEnd(func() { _ = t.instances.Close() })
	if err := t.openControl(); err != nil {
		return err
	}
	t.announce(from)
	if err := t.openDir(); err != nil {
		return err
	}
	t.openConsole()
	if err := t.openMonitor(); err != nil {
		return err
	}
	if err := t.connect(); err != nil {
		return err
	}
	return t.instances.Begin(ctx, t.control)
}

// readPrompts reads the prompts to train and to evaluate on.
func (t *training) readPrompts() (err error) {
	t.reader = dataset.New(t.folder, t.cfg, publish.CanaryTokens, t.warn)
	if t.prompts, _, err = t.reader.Prompts(t.cfg.Data.Train); err != nil {
		return err
	}
	if err := t.reader.CheckContext(slices.Concat(t.prompts...)); err != nil {
		return err
	}
	if t.sets, err = t.reader.EvalSets(); err != nil {
		return err
	}
	if err := t.reader.CheckSources(t.resolved); err != nil {
		return err
	}
	t.reader.WarnPlainText()
	return nil
}

// openReward opens the reward and tries it on the first prompts.
func (t *training) openReward(ctx context.Context, prompts []rollout.Prompt) (err error) {
	if t.reward, err = reward.New(t.cfg.Reward, t.cfg.Rollout.MaxTokens); err != nil {
		return usage.Wrap(err)
	}
	t.atEnd(func() { _ = t.reward.Close() })
	return t.reward.Try(ctx, prompts)
}

// openTrace starts the run's trace, or continues the existing one.
func (t *training) openTrace(from string) {
	t.spans = trace.New(trace.DefaultSpans)
	t.spans.Track(trainerRow) // on top
	if from == "" {
		return
	}
	if err := t.spans.Continue(t.tracePath()); err != nil {
		t.warn("%v", err)
	}
}

// openControl listens on the control address, if one is set.
func (t *training) openControl() error {
	c := &t.cfg.Control
	if c.Listen == "" {
		return nil
	}
	token, err := client.ReadToken(c.TokenFile)
	if err != nil {
		return usage.Errorf("control.token_file: %w", err)
	}
	live, err := control.New(c.Listen, token, t.cfg.Run.Dir)
	if err != nil {
		return usage.Errorf("control.listen: %w", err)
	}
	t.control = live
	t.atEnd(live.Close)
	t.warn("live page: http://%s/", live.Addr())
	return nil
}

// connect wires the parts of the run to the trainer.
func (t *training) connect() error {
	cfg := t.cfg
	held := evaluate.Deps{Fleet: t.instances.Fleet(), Reward: t.reward, Text: t.folder.Text, Warn: t.warn,
		Progress: func(done, of int) { t.console.Progress(done, of, "prompts evaluated") }}
	prompt, err := t.reader.Endless(t.prompts, cfg.Run.Seed)
	if err != nil {
		return err
	}
	spare, err := t.reader.Endless(t.prompts, ^cfg.Run.Seed)
	if err != nil {
		return err
	}
	sampling, err := newProducer(cfg, t.folder, t.instances.Fleet(), t.spans.Lanes(producerRow), spare, t.reward, t.warn)
	if err != nil {
		return err
	}
	t.rollouts = trainer.Rollouts{
		Loss: cfg.Loss, MaxTokens: cfg.Rollout.MaxTokens, DynamicSampling: cfg.Rollout.DynamicSampling > 0, LogRollouts: cfg.Log.Rollouts,
		BySource: len(data.Sources(nil, slices.Concat(t.prompts...))) > 1, Devices: 1, PeakFLOPS: device.PeakFLOPS(t.dev),
		Prompt:  prompt,
		Produce: sampling.Start,
		Publish: t.instances.Publish,
		Evaluate: func(ctx context.Context, step int) (map[string]float64, float64, error) {
			return t.evaluateStep(ctx, step, t.sets, held)
		},
		Queue: t.spans.Lanes(producerRow),
	}
	return nil
}

// train runs the training loop, then writes the trace and the report.
func (t *training) train(ctx context.Context) error {
	cfg := t.cfg
	if cfg.Rollout.TopP < 1 || cfg.Rollout.TopK > 0 {
		t.warn("training is not exactly on-policy: rollout.top_p and rollout.top_k truncate the distribution for sampling but not for training")
	}
	loop, err := trainer.New(trainer.Config{
		Dir: cfg.Run.Dir, Steps: cfg.Run.Steps, PromptsPerStep: cfg.Rollout.PromptsPerStep,
		MicroBatchTokens: cfg.Train.MicroBatchTokens, MiniBatches: cfg.Train.Minibatches, Optim: cfg.Train.Config,
		CheckpointEvery: cfg.Checkpoint.Every, CheckpointKeep: cfg.Checkpoint.Keep, EvalEvery: cfg.Eval.Every,
	}, t.state, trainer.Deps{
		Models: t.models, Files: t.folder.Files, Metrics: t.metrics, Progress: t.progress, Warn: t.warn,
		Track: t.spans.Track(trainerRow), Disk: t.spans.Track("disk"),
	}, t.rollouts)
	if err != nil {
		return err
	}
	restore := giveWay(1 + cfg.Inference.Instances)
	err = loop.Run(ctx)
	restore()
	if traceErr := t.spans.WriteFile(t.tracePath()); err == nil {
		err = traceErr
	}
	err = t.finish(loop.Step(), err)
	t.console.Close()
	if err == nil {
		_, _ = fmt.Fprintln(t.opts.Out, cfg.Run.Dir)
	}
	return err
}
