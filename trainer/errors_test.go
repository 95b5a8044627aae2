package trainer

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report"
	"github.com/easyrl/easyrl/rollout"
	"github.com/easyrl/easyrl/trainer/schedule"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

var errAway = errors.New("scorer is away")

// breaks makes the stream of a step fail after some of its groups.
func (s *script) breaks(tr *Trainer, step, after int) {
	produce := sampled(tr).Produce
	sampled(tr).Produce = func(ctx context.Context, p rollout.Batch) rollout.Stream {
		whole := produce(ctx, p)
		if p.Number != step {
			return whole
		}
		out := &stream{groups: make(chan rollout.Group, after), err: errAway}
		for range after {
			out.groups <- <-whole.Groups()
		}
		for range whole.Groups() { //nolint:revive // drains the remaining groups
		}
		close(out.groups)
		return out
	}
}

// resumed returns a trainer that continues from the checkpoint of a step.
func (s *script) resumed(tr *Trainer, step int) {
	tr.Models = tinyModels(s.t, 1, trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1})
	tr.checkpoints.models = tr.Models
	state, err := Resume(s.t.Context(), filepath.Join(CheckpointRoot(s.dir), checkpoint.StepName(step)), tr.Models)
	require.NoError(s.t, err)
	continueFrom(tr, state)
}

// continueFrom makes a new trainer continue from a state.
func continueFrom(tr *Trainer, state State) {
	tr.state, tr.resumedAt = state, state.Step
	sampled(tr).loop = schedule.New(schedule.Rule{}, tr.cfg.Steps, state.Step)
}

// An error keeps the steps trained before it, whatever it does to the current one. The
// resumed run ends like one without the error.
func TestErrorKeepsFinishedSteps(t *testing.T) {
	whole := newScript(t)
	require.NoError(t, whole.trainer(5, nil).Run(t.Context()))
	want := whole.models.Policy.Weights.Checksum()
	for name, spoil := range map[string]func(s *script, tr *Trainer){
		"sampling": func(s *script, tr *Trainer) { s.breaks(tr, 4, 2) },
		"publishing": func(_ *script, tr *Trainer) {
			publish := sampled(tr).Publish
			sampled(tr).Publish = func(ctx context.Context, w inference.Weights) error {
				if w.Version() == 4 {
					return errAway
				}
				return publish(ctx, w)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			tr := s.trainer(5, nil)
			spoil(s, tr)
			err := tr.Run(t.Context())
			require.ErrorIs(t, err, errAway)
			require.ErrorContains(t, err, "scorer is away; saved a checkpoint after step 3, -resume continues from it")
			require.Equal(t, []string{"step-000003"}, s.steps(t))
			again := s.trainer(5, nil)
			s.resumed(again, 3)
			require.NoError(t, again.Run(t.Context()))
			require.Equal(t, want, own(again.Models).Policy.Weights.Checksum())
		})
	}
}

// When the weights of the last step cannot be sampled from, no checkpoint of them is left for
// -resume, and the error names the one from which it continues.
func TestUnusableWeightsAreSetAside(t *testing.T) {
	const finding = "the weights after step 3 cannot be sampled from: their log-probabilities are not finite"
	for _, row := range []struct {
		name        string
		every, eval int
		lr          float64 // of step 3
		resumes     bool    // at step 3, after a process that was killed there
		steps       []string
		want        string // the error's end
		best        string // of the link
	}{
		{"saved", 1, 0, 1e15, false, []string{"failed-step-000003", "step-000001", "step-000002"},
			finding +
				", so their checkpoint is now ROOT/failed-step-000003; -resume continues from the checkpoint of step 2",
			""},
		{"not saved", 2, 0, 1e15, false, []string{"step-000002"},
			finding + "; -resume continues from the checkpoint of step 2", ""},
		{"none before", 3, 0, 1e15, false, []string{"failed-step-000003"},
			finding + ", so their checkpoint is now ROOT/failed-step-000003; no other checkpoint is left, so " +
				"-resume starts from the beginning", ""},
		{"never saved", 0, 0, 1e15, false, nil, finding +
			"; no other checkpoint is left, so -resume starts from the beginning", ""},
		{"resumed", 1, 0, 1e15, true, []string{"failed-step-000003", "step-000001", "step-000002"},
			finding +
				", so their checkpoint is now ROOT/failed-step-000003; -resume continues from the checkpoint of step 2",
			""},
		{"evaluated as the best", 1, 3, 1e15, false, []string{"failed-step-000003", "step-000001", "step-000002"},
			finding +
				", so their checkpoint is now ROOT/failed-step-000003; -resume continues from the checkpoint of step 2",
			""},
		{"usable", 1, 3, 1e-2, false, []string{"best", "step-000001", "step-000002", "step-000003"},
			"saved a checkpoint after step 3, -resume continues from it", "step-000003"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newScript(t)
			begin := func(steps int) *Trainer {
				tr := s.trainer(steps, func(c *Config) { c.CheckpointEvery, c.EvalEvery = row.every, row.eval })
				sampled(tr).Prompt = func(i int) rollout.Prompt {
					return rollout.Prompt{ID: "p", IDs: []int32{3, int32(i % 4)}}
				}
				return tr
			}
			tr := begin(5)
			s.during = func(step, _ int) {
				tr.schedule.Peak = 1e-2
				if step == 3 {
					tr.schedule.Peak = row.lr
				}
			}
			s.breaks(tr, 4, 0)
			if row.resumes {
				tr.cfg.Steps = 3
				continueFrom(tr, tr.state)
				require.NoError(t, tr.Run(t.Context()))
				tr = begin(5)
				s.breaks(tr, 4, 0)
				s.resumed(tr, 3)
			}
			err := tr.Run(t.Context())
			require.ErrorIs(t, err, errAway)
			root := CheckpointRoot(s.dir)
			require.Equal(t, "step 4: sample: scorer is away; "+strings.ReplaceAll(row.want, "ROOT", root), err.Error())
			require.Equal(t, row.steps, s.steps(t))
			best, _ := os.Readlink(filepath.Join(root, BestLink)) // there may be none
			require.Equal(t, row.best, best)
		})
	}
}

// An error writes and mentions no checkpoint if no step is complete, or if it comes between
// the updates of a step, with or without a signal.
func TestErrorKeepsNoPartialStep(t *testing.T) {
	t.Run("the first step", func(t *testing.T) {
		s := newScript(t)
		tr := s.trainer(5, nil)
		s.breaks(tr, 1, 2)
		require.EqualError(t, tr.Run(t.Context()), "step 1: sample: scorer is away")
		require.Empty(t, s.steps(t))
	})
	for _, stopped := range []bool{false, true} {
		t.Run("between optimizer steps", func(t *testing.T) {
			s := newScript(t)
			tr := s.trainer(5, func(c *Config) { c.MiniBatches, c.CheckpointEvery = 2, 2 })
			s.breaks(tr, 4, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tr.Track = s.spans.Track("trainer")
			if stopped {
				produce := sampled(tr).Produce
				sampled(tr).Produce = func(in context.Context, p rollout.Batch) rollout.Stream {
					if p.Number == 4 {
						return &cutting{produce(in, p).(*stream), cancel}
					}
					return produce(in, p)
				}
			}
			require.EqualError(t, tr.Run(ctx), "step 4: sample: scorer is away")
			require.Equal(t, []string{"step-000002"}, s.steps(t), "the weights match neither step 3 nor step 4")
		})
	}
}

// rankless is models that cannot be captured any more once a rank has failed.
type rankless struct {
	backend.Models
	err error
}

func (m *rankless) Capture(ctx context.Context, steps int) (func(dir string) error, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.Models.Capture(ctx, steps)
}

// If a rank has failed, the error names the checkpoint that remains.
func TestFailedRankLeavesLastCheckpoint(t *testing.T) {
	for every, want := range map[int]string{
		0: "",
		2: "; -resume continues from the checkpoint of step 2",
		3: "; saved a checkpoint after step 3, -resume continues from it",
	} {
		s := newScript(t)
		tr := s.trainer(5, func(c *Config) { c.CheckpointEvery = every })
		models, publish := &rankless{Models: tr.Models}, sampled(tr).Publish
		tr.checkpoints.models = models
		sampled(tr).Publish = func(ctx context.Context, w inference.Weights) error {
			if w.Version() < 4 {
				return publish(ctx, w)
			}
			models.err = &parallel.RankError{Rank: 1, Err: errors.New("process has ended")}
			return models.err
		}
		err := tr.Run(t.Context())
		require.Error(t, err)
		require.Regexp(t, "rank 1: process has ended"+want+"$", err.Error())
	}
}

// cutting is a stream that stops the run when it ends.
type cutting struct {
	*stream
	cancel context.CancelFunc
}

func (c *cutting) Wait() (rollout.Stats, error) {
	c.cancel()
	return c.stream.Wait()
}

// A failed evaluation keeps its step; the step's line is written when the evaluation is
// repeated. An evaluation without a score ranks nothing.
func TestFailedEvaluation(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(3, func(c *Config) { c.EvalEvery = 1 })
	sampled(tr).Evaluate = func(_ context.Context, step int) (map[string]float64, float64, error) {
		if step == 2 {
			return nil, 0, errAway
		}
		return map[string]float64{"eval/x/failed": 4}, math.NaN(), nil
	}
	err := tr.Run(t.Context())
	require.ErrorContains(t, err, "evaluate after step 2: scorer is away; saved a checkpoint after step 2")
	require.Equal(t, []string{"step-000002"}, s.steps(t), "step 1 is not the best: it has no score")
	state, err := ReadState(filepath.Join(CheckpointRoot(s.dir), "step-000002"))
	require.NoError(t, err)
	require.Zero(t, state.BestStep)
	require.Contains(t, state.Pending, "reward/mean")
	lines, err := report.ReadMetrics(filepath.Join(s.dir, report.MetricsFile))
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Equal(t, 4.0, lines[1]["eval/x/failed"])
}

// Replaced groups are recorded after trained ones, count in the mean of all sampled groups,
// and are not read back as trained.
func TestReplacedGroups(t *testing.T) {
	s := newScript(t)
	tr := s.trainer(1, nil)
	sampled(tr).DynamicSampling = true
	replaced := tinyGroups(2, 3)
	for i := range replaced {
		g := &replaced[i]
		g.Index, g.Replaced, g.Prompt.ID = 1-i, true, "old"
		for j := range g.Responses {
			g.Responses[j].Reward = -10
		}
	}
	for i := range replaced {
		replaced[i].Batch, replaced[i].Version = 1, 1
	}
	s.change = func(g *rollout.Group) {
		if g.Index < 2 {
			g.Before = replaced[1-g.Index : 2-g.Index]
		}
	}
	require.NoError(t, tr.Run(t.Context()))
	lines, err := report.ReadMetrics(filepath.Join(s.dir, report.MetricsFile))
	require.NoError(t, err)
	require.Equal(t, 2.0, lines[0]["groups/refilled"])
	require.InDelta(t, (lines[0]["reward/mean"]*12-10*6)/18, lines[0]["reward/sampled_mean"], 1e-12)

	path := filepath.Join(s.dir, "rollouts", "step-000001.jsonl")
	text, err := ReadRollouts(path)
	require.NoError(t, err)
	groups, err := ParseGroups(path, text, tinyShape())
	require.NoError(t, err)
	require.Len(t, groups, 4)
	for i, g := range groups {
		require.Equal(t, i, g.Index)
		require.False(t, g.Replaced)
	}
	last := recordedLines(t, path)[4:]
	require.Len(t, last, 2)
	for i, line := range last {
		g, err := parseGroup(line)
		require.NoError(t, err)
		require.True(t, g.Replaced)
		require.Equal(t, i, g.Index)
		require.Equal(t, -10.0, g.Responses[2].Reward)
	}
}

func recordedLines(t *testing.T, path string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.Split(bytes.TrimSpace(text), []byte("\n"))
}
