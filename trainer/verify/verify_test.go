package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/rollout"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

const vocab, positions = 37, 64

// models returns small models whose version 3 is published and whose policy has moved on.
func models(t *testing.T) *trimodel.Models {
	t.Helper()
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	w, err := model.NewWeights(dev, &model.Config{Type: "qwen3", HiddenSize: 18, FFNSize: 35, Layers: 2, Heads: 4,
		KVHeads: 2, HeadDim: 6, VocabSize: vocab,
		MaxPositions: positions, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.3, QKNorm: true, Tied: true, BOS: -1},
		npu.Weights)
	require.NoError(t, err)
	require.NoError(t, w.Init(3))
	m, err := trimodel.New(dev, w, trimodel.Config{Optim: optim.Default(), OldPolicy: loss.PreviousStep,
		Temperature: 0.8,
		Format:      optim.FixedPoint(1000, 100)})
	require.NoError(t, err)
	t.Cleanup(func() {
		m.Close()
		require.NoError(t, dev.Close())
	})
	_, err = m.Publish(t.Context(), 3)
	require.NoError(t, err)
	require.NoError(t, m.Policy.Weights.Init(4))
	return m
}

// world samples groups exactly, unless it lies.
type world struct {
	*Verifier
	t        *testing.T
	lies     []func(g *rollout.Group) // about the next groups of a repeated request
	fails    error                    // of repeated requests
	asked    [][]int                  // rollout.Batch.Only of each repeated request
	rejected []string                 // causes
	missing  int                      // groups whose reward fails
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.Verifier = &Verifier{Models: models(t), Rows: 20, Produce: w.produce}
	return w
}

func (w *world) batch() rollout.Batch { return rollout.Batch{Number: 3, Version: 3} }

// group returns group index of step 3 as an honest instance samples it.
func (w *world) group(index int) rollout.Group {
	rng := rand.New(rand.NewPCG(uint64(index), 5))
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = rng.Int32N(vocab)
		}
		return out
	}
	g := rollout.Group{Batch: 3, Version: 3, Index: index,
		Prompt: rollout.Prompt{ID: fmt.Sprint("p", index), IDs: ids(5)},
		Reject: func(cause error) { w.rejected = append(w.rejected, cause.Error()) }}
	for range 4 {
		r := rollout.Response{Spans: rollout.Sampled(ids(1+rng.IntN(12)), nil, 3), Finish: rollout.Stop, Reward: 1}
		var l attention.Layout
		l.AddResponse(l.Add(-1, g.Prompt.IDs, false), r.Spans[0].IDs)
		var err error
		r.Spans[0].Logprobs, err = w.Models.Recompute(w.t.Context(), &l, g.Version)
		require.NoError(w.t, err)
		g.Responses = append(g.Responses, r)
	}
	return g
}

// step is what a repeated request gives.
type step struct {
	groups chan rollout.Group
	stats  rollout.Stats
	err    error
}

func (s *step) Groups() <-chan rollout.Group { return s.groups }
func (s *step) Wait() (rollout.Stats, error) { return s.stats, s.err }

func (w *world) produce(ctx context.Context, b rollout.Batch) rollout.Stream {
	w.asked = append(w.asked, b.Only)
	s := &step{groups: make(chan rollout.Group, len(b.Only)), stats: rollout.Stats{RewardRetries: 2},
		err: errors.Join(ctx.Err(), w.fails)}
	defer close(s.groups)
	if s.err != nil {
		return s
	}
	if w.missing > 0 {
		w.missing--
		s.stats.Failed = 1
		return s
	}
	for _, i := range b.Only {
		g := w.group(i)
		if len(w.lies) > 0 {
			w.lies[0](&g)
			w.lies = w.lies[1:]
		}
		s.groups <- g
	}
	return s
}

// span returns the first span of a response of g.
func span(g *rollout.Group, response int) *rollout.Span { return &g.Responses[response].Spans[0] }

// bit changes the last bit of a log-probability of the last response.
func bit(g *rollout.Group) {
	logprobs := span(g, len(g.Responses)-1).Logprobs
	last := &logprobs[len(logprobs)-1]
	*last = math.Nextafter32(*last, -1e9)
}

// requireHonest requires that groups are those that honest instances sample.
func (w *world) requireHonest(groups []rollout.Group, indices ...int) {
	w.t.Helper()
	require.Len(w.t, groups, len(indices))
	for i := range groups {
		want := w.group(indices[i])
		require.Equal(w.t, want.Responses, groups[i].Responses)
	}
}

// Groups whose log-probabilities are the published weights' pass. Whatever else an instance
// records, its group is rejected, and the same prompt is sampled again until it is right.
func TestGroupsAreSampledAgain(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func(g *rollout.Group){
		"a bit":       bit,
		"NaN":         func(g *rollout.Group) { span(g, 1).Logprobs[0] = float32(math.NaN()) },
		"infinity":    func(g *rollout.Group) { span(g, 1).Logprobs[0] = float32(math.Inf(-1)) },
		"other token": func(g *rollout.Group) { span(g, 2).IDs[0] = (span(g, 2).IDs[0] + 1) % vocab },
		"two swapped": func(g *rollout.Group) {
			a, b := span(g, 0), span(g, 3)
			a.Logprobs, b.Logprobs = b.Logprobs, a.Logprobs
			a.IDs, b.IDs = make([]int32, len(a.Logprobs)), make([]int32, len(b.Logprobs))
		},
		"too long": func(g *rollout.Group) {
			g.Responses[1].Spans = rollout.Sampled(make([]int32, positions), make([]float32, positions), 3)
		},
		"replaced group": func(g *rollout.Group) {
			old := *g
			old.Responses = slices.Clone(g.Responses)
			ids := span(g, 0).IDs
			old.Responses[0].Spans = rollout.Sampled(ids, make([]float32, len(ids)), 3)
			g.Before = []rollout.Group{old}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			groups := []rollout.Group{w.group(0), w.group(1), w.group(2)}
			lie(&groups[1])
			w.lies = append(w.lies, lie, lie)
			var again Resampled
			got, err := w.Groups(t.Context(), w.batch(), groups, &again)
			require.NoError(t, err)
			w.requireHonest(got, 0, 1, 2)
			require.Equal(t, [][]int{{1}, {1}, {1}}, w.asked)
			require.Len(t, w.rejected, 3)
			require.Regexp(t, `^prompt p1.* response.*, expected `, w.rejected[0])
			again.Waited = 0
			require.Equal(t, Resampled{Groups: 3, RewardRetries: 6}, again)
		})
	}
}

// What cannot be exact is not compared, and neither are the weights that the policy has
// since become.
func TestHonestGroupsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.group(1)
	server.Reject = nil
	bit(&server)
	honest := w.group(0)
	honest.Before = []rollout.Group{w.group(5)}
	for _, rows := range []int{1, 20, 1000} {
		w.Rows = rows
		got, err := w.Groups(t.Context(), w.batch(), []rollout.Group{honest, server}, &Resampled{})
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Empty(t, w.asked)
	}
}

func TestGroupsThatCannotBeSampledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lying := w.group(2)
	bit(&lying)
	var again Resampled
	w.missing = 1
	got, err := w.Groups(t.Context(), w.batch(), []rollout.Group{w.group(0), lying}, &again)
	require.NoError(t, err)
	w.requireHonest(got, 0)
	require.Equal(t, 1, again.Failed, "its reward failed")

	w.fails = errors.New("no instance")
	_, err = w.Groups(t.Context(), w.batch(), []rollout.Group{lying}, &again)
	require.ErrorIs(t, err, w.fails)
	require.ErrorContains(t, err, "prompt p2: token ")
	require.ErrorContains(t, err,
		"the instance does not sample with the weights that it reports; sampling it again failed: no instance")

	w.fails = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	lying.Reject = func(error) { cancel(errors.New("interrupt")) }
	_, err = w.Groups(ctx, w.batch(), []rollout.Group{lying}, &again)
	require.ErrorIs(t, err, context.Canceled)

	late := w.group(0)
	late.Version = 2
	_, err = w.Groups(t.Context(), w.batch(), []rollout.Group{late}, &again)
	require.ErrorContains(t, err, "not on-policy")
}

// Groups leaves to training passes what they compute anyway, until one of them catches an
// instance.
func TestPassesVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.DeferToPasses = true
	lying, alike, other := w.group(0), w.group(1), w.group(2)
	other.Responses[0].Instance = "b"
	for _, g := range []*rollout.Group{&lying, &alike, &other} {
		bit(g) // in the last of four responses
	}
	groups := func(g ...rollout.Group) []rollout.Group {
		got, err := w.Groups(t.Context(), w.batch(), g, &Resampled{})
		require.NoError(t, err)
		return got
	}
	pass := func(g *rollout.Group, i int) error {
		honest := w.group(g.Index)
		return w.CheckTrained(g, &g.Responses[i], span(&honest, i).Logprobs)
	}
	groups(lying, alike, other)
	require.Empty(t, w.asked)
	require.NoError(t, w.CheckUntrained(t.Context(), &lying, []int{3}))
	require.NoError(t, w.CheckUntrained(t.Context(), &lying, []int{0, 1, 2, 3}))
	require.NoError(t, pass(&lying, 0))
	honest := w.group(0)
	honest.Reject = nil
	require.NoError(t, w.CheckTrained(&honest, &honest.Responses[0], span(&lying, 1).Logprobs), "it may differ")

	err := pass(&lying, 3)
	require.ErrorAs(t, err, new(OffPolicyError))
	require.ErrorContains(t, err, "prompt p0: token ")
	require.Empty(t, w.rejected, "only Groups rejects")
	w.requireHonest(groups(lying, alike), 0, 1)
	require.Equal(t, [][]int{{0}, {1}}, w.asked)
	require.Len(t, w.rejected, 2)
	require.NoError(t, pass(&alike, 3), "Groups verifies this instance")

	require.ErrorAs(t, w.CheckUntrained(t.Context(), &other, []int{0, 1}), new(OffPolicyError))
	w.requireHonest(groups(other), 2)
	replaced, old := w.group(3), w.group(4)
	replaced.Responses[0].Instance, old.Responses[0].Instance = "c", "c"
	old.Replaced = true
	bit(&old)
	replaced.Before = []rollout.Group{old}
	w.requireHonest(groups(replaced), 3)
	require.Equal(t, []int{3}, w.asked[3], "no pass computes replaced groups")
	long := w.group(5)
	long.Responses[0].Instance = "d"
	long.Responses[1].Spans = rollout.Sampled(make([]int32, positions), make([]float32, positions), 3)
	w.requireHonest(groups(long), 5)
}

// turns returns a group whose responses have three spans: one that is trained, an environment's, and one that the
// policy wrote but does not train. It also returns the log-probabilities of its trained spans.
func (w *world) turns() (g rollout.Group, trained [][]float32) {
	g = w.group(0)
	for i := range g.Responses {
		r := &g.Responses[i]
		r.Spans = append(r.Spans, rollout.Span{From: rollout.Environment, IDs: []int32{2, 3}},
			rollout.Span{From: rollout.Policy, IDs: []int32{4, 5}, Version: 3})
		var l attention.Layout
		l.AddTrajectory(l.Add(-1, g.Prompt.IDs, false), r.Spans, rollout.IsPolicy)
		logprobs, err := w.Models.Recompute(w.t.Context(), &l, g.Version)
		require.NoError(w.t, err)
		n := len(r.Spans[0].IDs)
		r.Spans[0].Logprobs, r.Spans[2].Logprobs = logprobs[:n], logprobs[n:]
		trained = append(trained, logprobs[:n])
	}
	return g, trained
}

// All tokens that the policy wrote are verified, trained or not. An environment may write others between them.
func TestTurnsAreVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.DeferToPasses = true
	g, trained := w.turns()
	_, err := w.Groups(t.Context(), w.batch(), []rollout.Group{g}, &Resampled{})
	require.NoError(t, err)
	all := []int{0, 1, 2, 3}
	require.NoError(t, w.CheckUntrained(t.Context(), &g, all))
	for i := range g.Responses {
		require.NoError(t, w.CheckTrained(&g, &g.Responses[i], trained[i]))
	}
	untrained := &g.Responses[2].Spans[2].Logprobs[1]
	*untrained = math.Nextafter32(*untrained, -1e9)
	require.NoError(t, w.CheckTrained(&g, &g.Responses[2], trained[2]))
	require.ErrorAs(t, w.CheckUntrained(t.Context(), &g, all), new(OffPolicyError))
	_, err = w.Groups(t.Context(), w.batch(), []rollout.Group{g}, &Resampled{})
	require.NoError(t, err)
	require.Equal(t, [][]int{{0}}, w.asked, "it is sampled again")

	g, _ = w.turns()
	g.Responses[1].Spans[2].Version = 2
	_, err = w.Groups(t.Context(), w.batch(), []rollout.Group{g}, &Resampled{})
	require.ErrorContains(t, err, "response 1: spans[2]: version is 2, expected 3")
}
