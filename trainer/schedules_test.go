package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/engine"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// schedule is what must not change a run's result.
type schedule struct {
	Seed               uint64 // of delays and faults
	Instances, Running int    // instances, and responses that each samples at once
	Killed, Stalled    int    // after this many requests instance 0 fails, or 1 never answers; -1 for never
	Gate, Recompute    bool   // wait for the whole step; recompute activations
	Budget, Threads    int    // maximum rows of a micro-batch; the trainer's threads
}

func drawSchedule(seed uint64) schedule {
	rng := rand.New(rand.NewPCG(seed, 17))
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	s := schedule{Seed: seed, Instances: pick(1, 2, 3, 5), Running: pick(2, 5, 64), Killed: -1, Stalled: -1,
		Gate: rng.IntN(5) == 0, Recompute: rng.IntN(2) == 0, Budget: pick(1, 30, 100, 400, 100000),
		Threads: pick(1, 2, 3)}
	if s.Instances > 1 && rng.IntN(2) == 0 {
		s.Killed = rng.IntN(8)
	}
	if s.Instances > 2 && rng.IntN(3) == 0 {
		s.Stalled = rng.IntN(8)
	}
	return s
}

// disturbed is an instance that answers late and fails for good.
type disturbed struct {
	inference.Instance
	killed, stalled int // after this many requests; -1 for never

	mu    sync.Mutex // guards what follows
	rng   *rand.Rand
	calls int
}

// Generate waits before it samples and before it answers.
func (d *disturbed) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	d.mu.Lock()
	d.calls++
	calls := d.calls
	before, after := time.Duration(d.rng.IntN(1000))*time.Millisecond,
		time.Duration(d.rng.ExpFloat64()*float64(time.Second))
	d.mu.Unlock()
	if d.stalled >= 0 && calls > d.stalled {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	<-time.After(before)
	out, err := d.Instance.Generate(ctx, req)
	<-time.After(after)
	if d.killed >= 0 && calls > d.killed {
		return nil, errors.New("killed")
	}
	return out, err
}

// task is what a run trains. Different tasks have different results.
type task struct {
	minibatches, dynamic int
	loss                 loss.Config
}

func tasks() map[string]task {
	plain, reference := loss.Default(), loss.Default()
	reference.Beta, reference.Aggregation = 0.05, loss.SequenceMean
	batch := loss.Default()
	batch.Kind, batch.Advantage, batch.Aggregation = loss.REINFORCE, loss.BatchAdvantage, loss.Constant
	return map[string]task{"plain": {1, 0, plain}, "minibatches": {3, 0, plain}, "dynamic": {1, 2, reference},
		"both":        {3, 2, reference},
		"whole batch": {1, 0, batch}}
}

// digits scores a response by its tokens. Half of the prompts give all responses one score.
type digits struct{}

func (digits) Score(_ context.Context, in reward.Input) (reward.Score, error) {
	sum := 0.0
	for _, r := range in.Text {
		sum += float64(r)
	}
	if in.Prompt.IDs[0]%2 == 0 {
		sum = 1
	}
	return reward.Score{Value: sum / 7, Parts: map[string]float64{"third": sum / 3}}, nil
}

// result is what a run leaves, apart from times.
type result struct {
	weights, first, second string // checksums
	metrics                []report.Values
}

// train runs three steps of 6 prompts × 4 responses under a schedule. Waits cost no time: it
// runs in a synctest bubble.
func (k task) train(t *testing.T, s schedule) (out result) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		open := func(threads int) npu.Device {
			dev, err := cpu.Open(npu.FP32, threads)
			require.NoError(t, err)
			return dev
		}
		dev := open(s.Threads)
		defer dev.Close()
		shape := &model.Config{Type: "qwen3", HiddenSize: 24, FFNSize: 40, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 8,
			VocabSize:    29,
			MaxPositions: 64, NormEps: 1e-5, RopeTheta: 1e4, InitStd: 0.2, QKNorm: true, Tied: true, BOS: -1}
		w, err := model.NewWeights(dev, shape, npu.Weights)
		require.NoError(t, err)
		require.NoError(t, w.Init(3))
		cfg := optim.Default()
		cfg.LR, cfg.ClipGrad = 1e-2, 0.3
		models, err := trimodel.New(dev, w,
			trimodel.Config{OldPolicy: loss.Behaviour, Reference: k.loss.Beta > 0, Temperature: 1,
				Recompute: s.Recompute, Optim: cfg, Format: optim.FixedPoint(6*4*10, 6*4)})
		require.NoError(t, err)
		defer models.Close()

		fc := fleet.DefaultConfig()
		fc.Attempts = 50 // a dead instance takes requests until it is known
		f, err := fleet.New(fc)
		require.NoError(t, err)
		defer f.Close()
		for i := range s.Instances {
			e, err := engine.New(engine.Config{ID: fmt.Sprint("e", i), MaxRunning: s.Running}, shape, nil, open(1))
			require.NoError(t, err)
			d := &disturbed{Instance: e, killed: -1, stalled: -1, rng: rand.New(rand.NewPCG(s.Seed, uint64(i)))}
			if i == 0 {
				d.killed = s.Killed
			} else if i == 1 {
				d.stalled = s.Stalled
			}
			require.NoError(t, f.Add(t.Context(), d))
		}
		prompt := func(i int) rollout.Prompt {
			ids := make([]int32, 1+(5*i)%9)
			for j := range ids {
				ids[j] = int32((7*i + 3*j) % 29)
			}
			return rollout.Prompt{ID: fmt.Sprint(i), IDs: ids}
		}
		p, err := producer.New(producer.Config{Gate: s.Gate, GroupSize: 4, Seed: 5, Scoring: 2,
			DynamicSampling: k.dynamic,
			Sampling:        inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 10, StopIDs: []int32{2}}},
			producer.Deps{Fleet: f, Reward: digits{}, Signal: k.loss.MaySignal,
				Text:  func(ids []int32) string { return string(ids) },
				Spare: func(place int) rollout.Prompt { return prompt(1000 + place) }})
		require.NoError(t, err)
		metrics, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
		require.NoError(t, err)
		loop, err := trainer.New(trainer.Config{Dir: dir, Steps: 3, PromptsPerStep: 6, MicroBatchTokens: s.Budget,
			MiniBatches: k.minibatches, Optim: cfg},
			trainer.State{}, trainer.Deps{Models: models, Metrics: metrics, Progress: func(int, report.Values) {},
				Warn: func(string, ...any) {}},
			trainer.Rollouts{Loss: k.loss, MaxTokens: 10, DynamicSampling: k.dynamic > 0, Prompt: prompt,
				Publish: f.Publish,
				Produce: func(ctx context.Context, b rollout.Batch) rollout.Stream { return p.Start(ctx, b) }})
		require.NoError(t, err)
		require.NoError(t, loop.Run(t.Context()))
		require.NoError(t, metrics.Close())
		out = result{weights: models.Policy.Weights.Checksum(), first: models.Policy.First.Checksum(),
			second: models.Policy.Second.Checksum()}
		out.metrics, err = report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
		require.NoError(t, err)
	})
	require.Len(t, out.metrics, 3)
	for _, line := range out.metrics {
		maps.DeleteFunc(line, func(name string, _ float64) bool {
			prefix, _, _ := strings.Cut(name, "/")
			return name == "time" || slices.Contains([]string{"timing_s", "perf", "idle", "memory", "fleet"}, prefix)
		})
	}
	return out
}

// The order in which groups arrive, and everything that it depends on, changes no bit of the
// weights, the moments or the metrics, apart from times and the state of the fleet.
func TestSchedulesGiveTheSameBits(t *testing.T) {
	of := tasks()
	names := slices.Sorted(maps.Keys(of))
	want := map[string]result{}
	retried, orders := 0, map[string]bool{}
	schedules := 50
	if soak.Race {
		schedules = 20
	} else if soak.Long() {
		schedules = 200
	}
	for seed := range uint64(schedules) {
		name := names[seed%uint64(len(names))]
		s := drawSchedule(seed)
		got := of[name].train(t, s)
		if _, ok := want[name]; !ok {
			want[name] = got
			require.NotEqual(t, got.metrics[0]["actor/loss"], got.metrics[1]["actor/loss"])
		}
		require.Equal(t, want[name], got, "%s: %+v", name, s)
		orders[fmt.Sprint(s.Instances, s.Killed >= 0, s.Stalled >= 0)] = true
		if s.Killed >= 0 || s.Stalled >= 0 {
			retried++
		}
	}
	require.Greater(t, retried, schedules/5)
	require.Len(t, map[string]bool{want["plain"].weights: true, want["minibatches"].weights: true,
		want["dynamic"].weights: true,
		want["both"].weights:    true, want["whole batch"].weights: true}, 5, "tasks differ")
}
