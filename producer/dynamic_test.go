package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// A prompt whose responses all have the same reward is replaced, at most DynamicSampling
// times. Its replacement depends only on step, index and attempt.
func TestDynamicSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		scored := 0.0
		some := func(_ context.Context, in reward.Input) (reward.Score, error) {
			if in.Prompt.ID != "spare-2-1" { // the only prompt with a signal
				return reward.Score{Value: 1}, nil
			}
			mu.Lock()
			defer mu.Unlock()
			scored++
			return reward.Score{Value: scored}, nil
		}
		p := newProducer(t, &fakeFleet{room: 8}, some, func(c *Config) { c.DynamicSampling, c.Gate = 2, true })
		p.deps.Spare = func(place int) rollout.Prompt { // steps 1 and 2 use two rounds of three each
			index, attempt := place%3, place/3-2*2+1
			return rollout.Prompt{ID: fmt.Sprintf("spare-%d-%d", index, attempt), IDs: []int32{1}}
		}
		_, groups, sum, err := produce(t.Context(), t, p, batch(1, 1, 1))
		require.NoError(t, err)
		var ids []string
		for i := range groups {
			require.Equal(t, i, groups[i].Index)
			ids = append(ids, groups[i].Prompt.ID)
		}
		require.Equal(t, []string{"spare-0-2", "spare-1-2", "spare-2-1"}, ids)
		byIndex := map[int][]string{}
		for _, g := range sum.replaced {
			require.True(t, g.Replaced)
			require.Len(t, g.Responses, 2)
			require.Equal(t, 1.0, g.Responses[1].Reward)
			byIndex[g.Index] = append(byIndex[g.Index], g.Prompt.ID)
		}
		require.Equal(t, map[int][]string{0: {"p0", "spare-0-1"}, 1: {"p1", "spare-1-1"}, 2: {"p2"}}, byIndex)
	})
}

// A prompt is replaced if Signal refuses its rewards, whatever their spread.
func TestDynamicSamplingAsksSignal(t *testing.T) {
	for name, c := range map[string]struct {
		signal   func([]float64) bool
		replaced int
	}{
		"equal rewards with a signal":      {func([]float64) bool { return true }, 0},
		"different rewards without signal": {func(rewards []float64) bool { return !differ(rewards) }, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				scored := 0.0
				score := func(context.Context, reward.Input) (reward.Score, error) {
					mu.Lock()
					defer mu.Unlock()
					if c.replaced > 0 {
						scored++
					}
					return reward.Score{Value: scored}, nil
				}
				p := newProducer(t, &fakeFleet{room: 8}, score, func(c *Config) { c.DynamicSampling = 2 })
				p.deps.Signal = c.signal
				p.deps.Spare = func(int) rollout.Prompt { return rollout.Prompt{ID: "spare", IDs: []int32{1}} }
				_, groups, sum, err := produce(t.Context(), t, p, batch(1, 1, 1))
				require.NoError(t, err)
				require.Len(t, groups, 3)
				require.Len(t, sum.replaced, c.replaced)
			})
		})
	}
}

// The fleet's limit also applies to replacements.
func TestFleetBoundsDynamicSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 2}
		equal := func(ctx context.Context, _ reward.Input) (reward.Score, error) {
			return reward.Score{Value: 1}, sleep(ctx, 10*time.Second)
		}
		p := newProducer(t, f, equal, func(c *Config) { c.DynamicSampling = 1 })
		p.deps.Spare = func(int) rollout.Prompt { return rollout.Prompt{ID: "spare", IDs: []int32{1}} }
		got, _, sum, err := produce(t.Context(), t, p, batch(1, 1, 1, 1, 1, 1))
		require.NoError(t, err)
		require.Len(t, sum.replaced, 6)
		require.Equal(t, 2, f.most)
		require.Equal(t, 24, got[5].second,
			"two times three rounds of two, each with its reward: freed slots are reused at once")
	})
}

// A tenth of a step may fail, but at least one group.
func TestBudget(t *testing.T) {
	t.Parallel()
	for prompts, may := range map[int]int{1: 1, 6: 1, 19: 1, 20: 2, 64: 6, 512: 51} {
		require.Equal(t, may, Budget(prompts))
	}
	for faulty, ok := range map[int]bool{2: true, 3: false} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			failed := 0
			some := func(context.Context, reward.Input) (reward.Score, error) {
				mu.Lock()
				defer mu.Unlock()
				if failed++; failed <= faulty {
					return reward.Score{}, errors.New("no verdict")
				}
				return reward.Score{Value: 1}, nil
			}
			p := newProducer(t, &fakeFleet{room: 8}, some, func(c *Config) { c.GroupSize, c.MaxFailed = 1, Budget(20) })
			_, groups, sum, err := produce(t.Context(), t, p, batch(make([]int32, 20)...))
			if !ok {
				require.ErrorIs(t, err, ErrBudget)
				require.ErrorContains(t, err, "prompt or reward failed for 3 of 20, more than the 2 allowed")
				return
			}
			require.NoError(t, err)
			require.Len(t, groups, 18)
			require.Equal(t, 2, sum.Failed)
		})
	}
}
