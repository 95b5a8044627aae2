package sample

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// fleet answers with one completion per version.
type fleet struct {
	versions []int64
	fault    error
	got      inference.Request
}

func (f *fleet) Generate(_ context.Context, req inference.Request) ([]inference.Completion, string, error) {
	f.got = req
	var out []inference.Completion
	for i, v := range f.versions {
		out = append(out, inference.Completion{IDs: []int32{int32(i), 9}, Logprobs: []float32{-1, -2}, Text: "raw",
			Finish: rollout.Stop, Version: v})
	}
	return out, "fake", f.fault
}

// answers is a fleet that answers with what it returns.
type answers func(req inference.Request) []inference.Completion

func (a answers) Generate(_ context.Context, req inference.Request) ([]inference.Completion, string, error) {
	if out := a(req); out != nil {
		return out, "fake", nil
	}
	return nil, "", inference.ErrNoInstance
}

type scorer func(ctx context.Context, in reward.Input) (reward.Score, error)

func (s scorer) Score(ctx context.Context, in reward.Input) (reward.Score, error) { return s(ctx, in) }

func TestSample(t *testing.T) {
	t.Parallel()
	prompt := rollout.Prompt{ID: "p", IDs: []int32{5}}
	req := inference.Request{N: 2, Seed: 11, Version: 3, Sampling: inference.Sampling{TopP: 1, MaxTokens: 2}}
	f := &fleet{versions: []int64{3, 3}}
	s := Sampler{Fleet: f}
	response := func(i int32, text string) rollout.Response {
		return rollout.Response{Text: text, Spans: rollout.Sampled([]int32{i, 9}, []float32{-1, -2}, 3),
			Finish: rollout.Stop, Instance: "fake"}
	}
	got, err := s.Sample(t.Context(), &prompt, req)
	require.NoError(t, err)
	require.Equal(t, &rollout.Group{Version: 3, Seed: 11, Prompt: prompt,
		Responses: []rollout.Response{response(0, "raw"), response(1, "raw")}}, got.Group)
	req.PromptIDs, f.got.Ended = prompt.IDs, nil
	require.Equal(t, req, f.got)
	s.Text = func(ids []int32) string { return fmt.Sprint(ids[0]) }
	got, err = s.Sample(t.Context(), &prompt, req)
	require.NoError(t, err)
	require.Equal(t, []rollout.Response{response(0, "0"), response(1, "1")}, got.Responses)

	f.versions = []int64{3, 2}
	_, err = s.Sample(t.Context(), &prompt, req)
	require.ErrorIs(t, err, inference.ErrStale)
	require.EqualError(t, err, "stale weights: fake returned a response of version 2, expected 3")
	req.Version = 0 // any version
	_, err = s.Sample(t.Context(), &prompt, req)
	require.NoError(t, err)
	f.versions = []int64{3}
	_, err = s.Sample(t.Context(), &prompt, req)
	require.EqualError(t, err, "fake returned 1 responses, expected 2")
	f.fault = inference.ErrNoInstance
	_, err = s.Sample(t.Context(), &prompt, req)
	require.ErrorIs(t, err, inference.ErrNoInstance)
}

func TestScore(t *testing.T) {
	t.Parallel()
	group := func(ctx context.Context, score scorer, atOnce int) *Group {
		s := Sampler{Reward: score, AtOnce: atOnce, Fleet: answers(func(inference.Request) []inference.Completion {
			return []inference.Completion{{Text: "a", IDs: []int32{1}, Finish: rollout.Stop},
				{Text: "b", IDs: []int32{1, 2}, Finish: rollout.Length}}
		})}
		g, err := s.Sample(ctx, &rollout.Prompt{ID: "p"}, inference.Request{N: 2})
		require.NoError(t, err)
		return g
	}
	want := []reward.Score{
		{Value: 1, Parts: map[string]float64{"x": 1}, Answer: "a", Verdict: reward.Right},
		{Value: 2, Parts: map[string]float64{"x": 2}, Answer: "b", Verdict: reward.Wrong},
	}
	right := func(_ context.Context, in reward.Input) (reward.Score, error) {
		if in.Prompt.ID != "p" || (in.Text == "a") != (in.Finish == rollout.Stop) {
			return reward.Score{}, fmt.Errorf("input %+v", in)
		}
		return want[in.Length-1], nil
	}
	for _, atOnce := range []int{1, 2, 8} {
		g := group(t.Context(), right, atOnce)
		scores := make([]reward.Score, len(g.Responses))
		require.NoError(t, g.Score(scores))
		require.Equal(t, want, scores)
		for i := range want {
			require.Equal(t, want[i].Value, g.Responses[i].Reward)
			require.Equal(t, want[i].Parts, g.Responses[i].Parts)
		}
	}
	broken := errors.New("broken")
	for fault, score := range map[string]scorer{
		"broken": func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{}, broken },
		"panic: out of range": func(context.Context, reward.Input) (reward.Score, error) {
			panic("out of range")
		},
		"reward is NaN, expected a number from -1000000 to 1000000": func(context.Context, reward.Input) (
			reward.Score, error) {
			return reward.Score{Value: math.NaN()}, nil
		},
		"reward is -Inf, expected a number from": func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: math.Inf(-1)}, nil
		},
		"part x is +Inf, expected a number from": func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: 1, Parts: map[string]float64{"x": math.Inf(1), "y": 0}}, nil
		},
		"reward is -1.000001e+06, expected a number from -1000000 to 1000000": func(context.Context, reward.Input) (
			reward.Score, error) {
			return reward.Score{Value: -1_000_001}, nil
		},
		"part y is 1e+300, expected a number from -1000000 to 1000000": func(context.Context, reward.Input) (
			reward.Score, error) {
			return reward.Score{Value: 1, Parts: map[string]float64{"x": 1e6, "y": 1e300}}, nil
		},
	} {
		second := func(ctx context.Context, in reward.Input) (reward.Score, error) {
			if in.Text == "a" {
				return right(ctx, in)
			}
			return score(ctx, in)
		}
		err := group(t.Context(), second, 2).Score(nil)
		require.ErrorContains(t, err, "reward of response 1: "+fault)
	}
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	require.Equal(t, stop, group(ctx, right, 2).Score(nil))
}
