package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/producer"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// tokens is a reward that counts response tokens.
type tokens struct{}

func (tokens) Score(_ context.Context, in reward.Input) (reward.Score, error) {
	return reward.Score{Value: float64(in.Length)}, nil
}

// In prompt order, a step yields bit-identical groups for any number of
// instances, even if they come and go.
func TestStepIsIndependentOfInstances(t *testing.T) {
	c := modelShapes()["qwen3"]
	dev := openCPU(t, 1)
	defer func() { require.NoError(t, dev.Close()) }()
	snapshot := model.NewSnapshot(newWeights(t, dev, c, 9), 1)
	batch := rollout.Batch{Number: 1, Version: 1}
	for i := range 12 {
		batch.Prompts = append(batch.Prompts, rollout.Prompt{ID: fmt.Sprint(i), IDs: prompt(3+5*i, i)})
	}
	produce := func(instances int, during func(f *fleet.Fleet, first *Engine, g rollout.Group)) []rollout.Group {
		f, err := fleet.New(fleet.DefaultConfig())
		require.NoError(t, err)
		first := newInstance(t, c, 0)
		require.NoError(t, f.Add(t.Context(), first))
		for i := 1; i < instances; i++ {
			require.NoError(t, f.Add(t.Context(), newInstance(t, c, i)))
		}
		require.NoError(t, f.Publish(t.Context(), snapshot))
		cfg := producer.DefaultConfig()
		cfg.GroupSize, cfg.Seed = 4, 11
		cfg.Sampling = inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 30, StopIDs: []int32{2}}
		p, err := producer.New(cfg, producer.Deps{Fleet: f, Reward: tokens{}, Text: letters{}.Decode})
		require.NoError(t, err)
		stream := p.Start(t.Context(), batch)
		var groups []rollout.Group
		for g := range stream.Groups() {
			if during != nil {
				during(f, first, g)
			}
			for i := range g.Responses {
				g.Responses[i].Instance = ""
			}
			require.False(t, g.Scored.IsZero())
			g.Scored = time.Time{}
			groups = append(groups, g)
		}
		_, err = stream.Wait()
		require.NoError(t, err)
		require.NoError(t, f.Close())
		slices.SortFunc(groups, func(a, b rollout.Group) int { return a.Index - b.Index })
		return groups
	}
	want := produce(1, nil)
	require.Len(t, want, 12)
	require.Equal(t, want, produce(3, nil))
	arrived := 0
	require.Equal(t, want, produce(2, func(f *fleet.Fleet, first *Engine, g rollout.Group) {
		switch arrived++; arrived {
		case 1:
			require.NoError(t, f.Add(t.Context(), newInstance(t, c, 2)))
		case 2:
			require.NoError(t, f.Remove(t.Context(), first))
		}
	}))
}

// newInstance returns an engine whose size and thread count depend on i.
func newInstance(t *testing.T, c *model.Config, i int) *Engine {
	t.Helper()
	cfg := Config{ID: fmt.Sprintf("i%d", i), MaxRunning: 3 + 2*i, CachePages: 10 + 3*i}
	e, err := New(cfg, c, letters{}, openCPU(t, 1+i%2))
	require.NoError(t, err)
	return e
}
