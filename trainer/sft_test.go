package trainer

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// sometime is a context that is cancelled when it is queried for the left-th time.
type sometime struct {
	context.Context
	left *int
}

func (c sometime) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// Fine-tuning that is stopped anywhere, even in the middle of a batch or an evaluation,
// resumes to the same weights and the same lines.
func TestStoppedSFTResumes(t *testing.T) {
	t.Parallel()
	examples := make([]Demonstration, 7)
	for i := range examples {
		response := []int32{int32(9 - i), 5, 1}[i%2:]
		examples[i] = Demonstration{Prompt: []int32{int32(i), 2}, Spans: rollout.Demonstrated(response)}
	}
	// run returns the weights' checksum, or an empty one if it was stopped.
	run := func(t *testing.T, dir string, ctx context.Context) string { //nolint:revive // the test's context is wrapped
		models := tinyModels(t, 1, trimodel.Config{Temperature: 1})
		var state State
		from, _, _, err := checkpoint.Latest(CheckpointRoot(dir))
		first := 0
		if err == nil {
			state, err = Resume(t.Context(), from, models)
			require.NoError(t, err)
			if first = state.Step + 1; state.Pending != nil || state.Step == 0 {
				first = state.Step
			}
		}
		metrics, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), first)
		require.NoError(t, err)
		defer func() { require.NoError(t, metrics.Close()) }()
		cfg := Config{Dir: dir, Steps: 4, PromptsPerStep: 3, MicroBatchTokens: 6, MiniBatches: 1,
			Optim: optim.Default(), CheckpointEvery: 3, EvalEvery: 2}
		cfg.Optim.LR = 1e-2
		tr, err := NewSFT(cfg, state, Deps{Models: models, Metrics: metrics, Progress: func(int, report.Values) {}},
			Demonstrations{Example: func(i int) Demonstration { return examples[i%5] },
				HeldOut: []HeldOut{{"a", examples[5:]}, {"b", examples[:2]}}})
		require.NoError(t, err)
		if err := tr.Run(ctx); err != nil {
			require.ErrorIs(t, err, ErrStopped)
			return ""
		}
		return models.Policy.Weights.Checksum()
	}
	lines := func(dir string) (out []report.Values) {
		steps, err := report.ReadMetrics(filepath.Join(dir, report.MetricsFile))
		require.NoError(t, err)
		for _, values := range steps {
			one := report.Values{}
			for _, name := range []string{"step", "actor/loss", "actor/lr", "eval/a/loss", "eval/b/loss"} {
				if v, ok := values[name]; ok {
					one[name] = v
				}
			}
			out = append(out, one)
		}
		return out
	}
	whole := t.TempDir()
	want := run(t, whole, t.Context())
	require.Len(t, lines(whole), 5)
	require.Len(t, lines(whole)[2], 5, "step 2 is evaluated")
	require.Len(t, lines(whole)[3], 3, "step 3 is not")
	stopped := 0
	for n := 0; ; n++ {
		dir := t.TempDir()
		left := n
		got := run(t, dir, sometime{t.Context(), &left})
		if got == "" {
			stopped++
			got = run(t, dir, t.Context())
		}
		require.Equal(t, want, got, "stopped at %d", n)
		require.Equal(t, lines(whole), lines(dir), "stopped at %d", n)
		if left >= 0 {
			break
		}
	}
	require.GreaterOrEqual(t, stopped, 10)
}

// The held-out loss is the mean over all response tokens, however these are split into
// micro-batches. It equals the loss of one pass over everything.
func TestHeldOutLoss(t *testing.T) {
	t.Parallel()
	set := []Demonstration{{[]int32{1, 2}, rollout.Demonstrated([]int32{3, 4, 5})},
		{[]int32{6}, rollout.Demonstrated([]int32{7})}, {[]int32{8, 9, 3}, rollout.Demonstrated([]int32{2, 1})}}
	models := tinyModels(t, 1, trimodel.Config{Temperature: 1})
	var l attention.Layout
	for _, e := range set {
		l.AddResponse(l.Add(-1, e.Prompt, false), e.Spans.IDs())
	}
	lp, err := models.Forward(&l, 0)
	require.NoError(t, err)
	require.Len(t, lp.Values[backend.Policy], 6)
	want := 0.0
	for _, v := range lp.Values[backend.Policy] {
		want -= float64(v) / 6
	}
	before := models.Policy.Weights.Checksum()
	for _, most := range []int{1, 5, 100} {
		tr, err := NewSFT(Config{MicroBatchTokens: most, Optim: optim.Default()}, State{}, Deps{Models: models},
			Demonstrations{HeldOut: []HeldOut{{"x", set}}})
		require.NoError(t, err)
		values := report.Values{}
		_, err = tr.evaluate(t.Context(), values)
		require.NoError(t, err)
		require.InDelta(t, want, values["eval/x/loss"], 1e-12)
		require.Less(t, math.Abs(values["eval/x/loss"]-math.Log(float64(tinyShape().VocabSize))), 1.0,
			"random weights know nothing")
	}
	require.Equal(t, before, models.Policy.Weights.Checksum())
}

// breaking is a source that fails in a step.
type breaking struct {
	source
	step int
}

func (b *breaking) accumulate(ctx context.Context, s *step, first, end int) (*miniBatch, error) {
	if s.number == b.step {
		return nil, errAway
	}
	return b.source.accumulate(ctx, s, first, end)
}

func TestSFTFaults(t *testing.T) {
	t.Parallel()
	sft := func(t *testing.T, lr float64, example func(i int) Demonstration) *Trainer {
		dir := t.TempDir()
		metrics, err := report.OpenMetrics(filepath.Join(dir, report.MetricsFile), 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, metrics.Close()) })
		cfg := Config{Dir: dir, Steps: 9, PromptsPerStep: 4, MicroBatchTokens: 1, MiniBatches: 1,
			Optim: optim.Default(), CheckpointEvery: 1}
		cfg.Optim.LR = lr
		tr, err := NewSFT(cfg, State{}, Deps{Models: tinyModels(t, 1, trimodel.Config{Temperature: 1}),
			Metrics:  metrics,
			Progress: func(int, report.Values) {}}, Demonstrations{Example: example})
		require.NoError(t, err)
		return tr
	}
	example := func(i int) Demonstration {
		return Demonstration{Prompt: []int32{int32(i % 7)}, Spans: rollout.Demonstrated([]int32{5, 1})}
	}
	t.Run("rate", func(t *testing.T) {
		t.Parallel()
		tr := sft(t, 1e30, example)
		require.ErrorContains(t, tr.Run(t.Context()), "step 1: after an update at lr 1e+30: weights of ")
		require.NoDirExists(t, CheckpointRoot(tr.cfg.Dir))
	})
	t.Run("gradient", func(t *testing.T) {
		t.Parallel()
		var tr *Trainer
		tr = sft(t, 1e-3, func(i int) Demonstration {
			if i == 4*3 { // the first of step 4
				own(tr.Models).Policy.Gradients.Params[0].Mark.Int64s()[0] = int64(math.Float32bits(1e9))
			}
			return example(i)
		})
		err := tr.Run(t.Context())
		require.ErrorIs(t, err, optim.ErrNonFinite)
		require.ErrorContains(t, err, "step 4: gradient of model.embed_tokens.weight: a value of a leaf is 1e+09 in "+
			"magnitude, expected at most 1.678e+07, "+
			"the bound of the fixed-point sums of gradients (remedy: a lower train.lr), 1 in a row")
	})
	t.Run("error", func(t *testing.T) {
		t.Parallel()
		tr := sft(t, 1e-3, example)
		tr.cfg.CheckpointEvery = 0
		tr.source = &breaking{tr.source, 4}
		require.EqualError(t, tr.Run(t.Context()),
			"step 4: scorer is away; saved a checkpoint after step 3, -resume continues from it")
		state, err := ReadState(filepath.Join(CheckpointRoot(tr.cfg.Dir), "step-000003"))
		require.NoError(t, err)
		require.Equal(t, State{Step: 3, Updates: 3, Position: 12}, state)
	})
	t.Run("stopped in the middle of a step", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		tr := sft(t, 1e-3, func(i int) Demonstration {
			if i == 4*3+1 { // of step 4
				cancel()
			}
			return example(i)
		})
		require.ErrorIs(t, tr.Run(ctx), ErrStopped)
		require.Equal(t, 3, tr.Step())
		resumed := tinyModels(t, 1, trimodel.Config{Temperature: 1})
		state, err := Resume(t.Context(), filepath.Join(CheckpointRoot(tr.cfg.Dir), "step-000003"), resumed)
		require.NoError(t, err)
		require.Equal(t, State{Step: 3, Updates: 3, Position: 12}, state)
		require.Equal(t, own(tr.Models).Policy.Weights.Checksum(), resumed.Policy.Weights.Checksum())
	})
}

// wide is models with several lanes that counts their micro-batches.
type wide struct {
	*trimodel.Models
	lanes, passes int
}

func (w *wide) Lanes() int { return w.lanes }

func (w *wide) Pass(ctx context.Context, l *attention.Layout, sampler int64, derive backend.Derive) error {
	w.passes++
	return w.Models.Pass(ctx, l, sampler, derive)
}

// A batch of demonstrations occupies all lanes of the models, in the same bits.
func TestSFTOccupiesLanes(t *testing.T) {
	t.Parallel()
	long := make([]int32, DemonstrationRows/2) // two examples exceed a leaf
	run := func(lanes int) (passes int, sum string) {
		models := &wide{Models: tinyModels(t, 1, trimodel.Config{Temperature: 1}), lanes: lanes}
		metrics, err := report.OpenMetrics(filepath.Join(t.TempDir(), report.MetricsFile), 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, metrics.Close()) }()
		cfg := Config{Dir: t.TempDir(), Steps: 1, PromptsPerStep: 8, MicroBatchTokens: 1 << 20, MiniBatches: 1,
			Optim: optim.Default()}
		tr, err := NewSFT(cfg, State{}, Deps{Models: models, Metrics: metrics, Progress: func(int, report.Values) {}},
			Demonstrations{Example: func(i int) Demonstration {
				return Demonstration{Prompt: long, Spans: rollout.Demonstrated([]int32{int32(i), 5, 1})}
			}})
		require.NoError(t, err)
		require.NoError(t, tr.Run(t.Context()))
		return models.passes, models.Policy.Weights.Checksum()
	}
	passes, want := run(1)
	require.Equal(t, 1, passes)
	for _, lanes := range []int{2, 4, 8} {
		passes, sum := run(lanes)
		require.Equal(t, lanes, passes)
		require.Equal(t, want, sum)
	}
}
