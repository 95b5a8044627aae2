package trainer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/report/trace"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// script is a run whose parts record what they are asked to do.
type script struct {
	t      *testing.T
	dir    string
	models *trimodel.Models
	events []string
	hashes []string // of the published weights
	// during, if set, is called with each group before it reaches the trainer.
	during func(step, group int)
	// change, if set, may change each group.
	change func(g *rollout.Group)
	spans  *trace.Spans
}

func newScript(t *testing.T) *script {
	return &script{t: t, dir: t.TempDir(), models: tinyModels(
		t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1}),
		spans: trace.New(1000)}
}

func (s *script) event(format string, args ...any) {
	s.events = append(s.events, fmt.Sprintf(format, args...))
}

// trainer returns a trainer of the given number of steps, with 4 prompts each.
func (s *script) trainer(steps int, change func(c *Config)) *Trainer {
	s.t.Helper()
	metrics, err := report.OpenMetrics(filepath.Join(s.dir, report.MetricsFile), 0)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, metrics.Close()) })
	cfg := Config{Dir: s.dir, Steps: steps, PromptsPerStep: 4, MicroBatchTokens: 100, MiniBatches: 1,
		Optim: optim.Default(), CheckpointKeep: 9}
	cfg.Optim.LR = 1e-2
	if change != nil {
		change(&cfg)
	}
	tr, err := New(cfg, State{}, Deps{
		Models: s.models, Metrics: metrics, Files: map[string][]byte{"config.json": []byte("{}")},
		Track:    s.spans.Track("trainer"),
		Progress: func(step int, _ report.Values) { s.event("done %d", step) },
		Warn:     func(format string, args ...any) { s.event(format, args...) },
	}, Rollouts{
		Loss: loss.Default(), MaxTokens: 10, LogRollouts: true,
		Prompt:  func(i int) rollout.Prompt { return rollout.Prompt{ID: fmt.Sprint(i)} },
		Produce: s.produce,
		Publish: func(_ context.Context, w inference.Weights) error {
			s.event("publish %d", w.Version())
			s.hashes = append(s.hashes, w.Checksum())
			return nil
		},
		Evaluate: func(_ context.Context, step int) (map[string]float64, float64, error) {
			s.event("evaluate %d", step)
			return map[string]float64{"eval/x/mean@1": 0.5}, 0.5, nil
		},
	})
	require.NoError(s.t, err)
	return tr
}

// sampled returns a trainer's source.
func sampled(tr *Trainer) *rollouts { return tr.source.(*rollouts) }

// produce delivers a step's groups one by one.
func (s *script) produce(ctx context.Context, p rollout.Batch) rollout.Stream {
	s.event("produce %d with %d for prompts %s to %s", p.Number, p.Version, p.Prompts[0].ID,
		p.Prompts[len(p.Prompts)-1].ID)
	out := &stream{groups: make(chan rollout.Group)}
	groups := tinyGroups(len(p.Prompts), 3)
	go func() { // ends with the channel, which accumulate and abandon read to its end
		defer close(out.groups)
		for i := range groups {
			g := groups[i]
			g.Batch, g.Version = p.Number, p.Version
			for j := range g.Responses {
				g.Responses[j].Spans[0].Version = p.Version
			}
			if s.change != nil {
				s.change(&g)
			}
			if s.during != nil {
				s.during(p.Number, i)
			}
			select {
			case out.groups <- g:
			case <-ctx.Done():
				out.err = ctx.Err()
				return
			}
		}
	}()
	return out
}

// "Once the entire batch has been consumed, the policy model's weights are
// synchronized to the rollout workers, after which the next batch of
// asynchronous training begins." (section 1; Algorithm 1, lines 2 to 4)
func TestStepsFollowEachOther(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.trainer(3, nil).Run(t.Context()))
	require.Equal(t, []string{
		"publish 1", "produce 1 with 1 for prompts 0 to 3", "done 1",
		"publish 2", "produce 2 with 2 for prompts 4 to 7", "done 2",
		"publish 3", "produce 3 with 3 for prompts 8 to 11", "done 3",
	}, s.events)
	require.NotEqual(t, s.hashes[0], s.hashes[1])
	require.NotEqual(t, s.hashes[1], s.hashes[2])
	steps, err := report.ReadMetrics(filepath.Join(s.dir, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, steps, 3)
	require.FileExists(t, filepath.Join(s.dir, "checkpoints", "step-000003", "model.safetensors"))
	require.FileExists(t, filepath.Join(s.dir, "rollouts", "step-000002.jsonl"))
}

// "The main process acts as a consumer, immediately retrieving the outputs for training": a
// group is trained before the next one arrives. (section 1)
func TestTrainingStartsWithFirstGroup(t *testing.T) {
	s := newScript(t)
	trace := filepath.Join(t.TempDir(), "trace.json")
	s.during = func(_, group int) {
		if group != 1 {
			return
		}
		// The second group does not arrive before the first has been trained.
		for trained := false; !trained; <-time.After(time.Millisecond) {
			require.NoError(t, s.spans.WriteFile(trace))
			b, err := os.ReadFile(trace)
			require.NoError(t, err)
			trained = bytes.Contains(b, []byte(`"backward"`))
		}
	}
	require.NoError(t, s.trainer(1, nil).Run(t.Context()))
}

// "Compute loss then backward; O ← O + ∇L" for each group, and one update per step: the
// weights do not change until the last group has arrived. (Algorithm 1, lines 13 to 21)
func TestOneUpdatePerStep(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(2, nil)
	require.NoError(t, tr.Run(t.Context()))
	require.Equal(t, 2, tr.state.Updates)

	s = newScript(t)
	tr = s.trainer(2, func(c *Config) { c.MiniBatches = 2 })
	require.NoError(t, tr.Run(t.Context()))
	require.Equal(t, 4, tr.state.Updates, "two minibatches, two steps")
}

func TestEvaluationAndBestCheckpoint(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.trainer(2, func(c *Config) { c.EvalEvery = 1 }).Run(t.Context()))
	require.Equal(t, []string{
		"publish 1", "evaluate 0", "done 0", "produce 1 with 1 for prompts 0 to 3",
		"publish 2", "evaluate 1", "done 1", "produce 2 with 2 for prompts 4 to 7",
		"publish 3", "evaluate 2", "done 2",
	}, s.events)
	require.DirExists(t, filepath.Join(s.dir, "checkpoints", "step-000001"), "the best")
	state, err := ReadState(filepath.Join(s.dir, "checkpoints", "step-000002"))
	require.NoError(t, err)
	require.Equal(t, State{Step: 2, Updates: 2, Position: 8, Best: 0.5, BestStep: 1, Total: 2}, state)
}

// An abandoned step leaves nothing behind. The checkpoint is that of the last completed
// step, and its weights are the published ones.
func TestStopMidStep(t *testing.T) {
	s := newScript(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.during = func(step, group int) {
		if step == 2 && group == 2 {
			cancel()
		}
	}
	tr := s.trainer(5, nil)
	require.ErrorIs(t, tr.Run(ctx), ErrStopped)
	require.Equal(t, 1, tr.Step())
	dir := filepath.Join(s.dir, "checkpoints", "step-000001")
	resumed := tinyModels(t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	state, err := Resume(t.Context(), dir, resumed)
	require.NoError(t, err)
	require.Equal(t, 4, state.Position)
	require.Equal(t, s.hashes[1], resumed.Policy.Weights.Checksum())
}

// stepped calls after following each update.
type stepped struct {
	backend.Models
	after func(update int)
}

func (m *stepped) Step(ctx context.Context, u backend.Update) (float64, error) {
	defer m.after(u.Number)
	return m.Models.Step(ctx, u)
}

// After the first of several updates, a step is finished before the run stops, so that
// checkpoints hold whole steps.
func TestStopBetweenMinibatches(t *testing.T) {
	s := newScript(t)
	ctx, cancel := context.WithCancel(t.Context())
	updated := make(chan struct{})
	s.during = func(step, group int) {
		if step == 2 && group == 3 {
			<-updated
			cancel()
		}
	}
	tr := s.trainer(5, func(c *Config) { c.MiniBatches = 2 })
	tr.Models = &stepped{tr.Models, func(update int) {
		if update == 3 { // the first of step 2
			close(updated)
		}
	}}
	require.ErrorIs(t, tr.Run(ctx), ErrStopped)
	require.Equal(t, 2, tr.Step())
	require.Equal(t, 4, tr.state.Updates)
}
