package producer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/reward"
)

// A panic in a task is an error of the step, unless the reward caused it.
func TestTaskPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer(t, &fakeFleet{room: 2}, length, nil)
		p.sampler.Text = func([]int32) string { panic("no such token") }
		_, _, _, err := produce(t.Context(), t, p, batch(1, 2, 3, 4))
		require.ErrorContains(t, err, "no such token")
	})
}

// Each response of a group is scored once, up to Config.Scoring at a time. After a failure
// no more scoring begins.
func TestScoresConcurrently(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		scoring, group int
		slow           time.Duration // of the first response; the others take a second
		fails          string        // the response whose reward fails
		want           time.Duration
		most, scored   int
	}{
		"one":                 {1, 5, time.Second, "", 5 * time.Second, 1, 5},
		"three":               {3, 8, time.Second, "", 3 * time.Second, 3, 8},
		"more than responses": {8, 5, time.Second, "", time.Second, 5, 5},
		"one is slow":         {2, 5, 4 * time.Second, "", 4 * time.Second, 2, 5},
		"one fails":           {2, 8, 1500 * time.Millisecond, "[0]", 2 * time.Second, 2, 3},
		"all have begun":      {8, 8, time.Second, "[0]", time.Second, 8, 8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				running, most := 0, 0
				scored := map[string]int{}
				fn := func(_ context.Context, in reward.Input) (reward.Score, error) {
					mu.Lock()
					running++
					most = max(most, running)
					scored[in.Text]++
					mu.Unlock()
					took := time.Second
					if in.Text == "[0]" {
						took = c.slow
					}
					<-time.After(took)
					mu.Lock()
					defer mu.Unlock()
					running--
					if in.Text == c.fails {
						return reward.Score{}, broken
					}
					return reward.Score{Value: 1}, nil
				}
				p := newProducer(t, &fakeFleet{room: 1}, fn, func(cfg *Config) {
					cfg.Scoring, cfg.GroupSize, cfg.MaxFailed = c.scoring, c.group, 0
				})
				start := time.Now()
				_, groups, _, err := produce(t.Context(), t, p, batch(0))
				if c.fails == "" {
					require.NoError(t, err)
					require.Len(t, groups, 1)
				} else {
					require.ErrorIs(t, err, broken)
				}
				require.Equal(t, c.want, time.Since(start))
				require.Equal(t, c.most, most)
				require.Len(t, scored, c.scored)
				for text, times := range scored {
					require.Equal(t, 1, times, text)
				}
			})
		})
	}
}

// Failed prompts are reported in prompt order, whichever failed first.
func TestFailedPromptsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fn := func(_ context.Context, in reward.Input) (reward.Score, error) {
			if in.Prompt.ID != "p3" {
				return reward.Score{}, errors.New("broken")
			}
			return reward.Score{Value: 1}, nil
		}
		_, groups, sum, err := produce(t.Context(), t,
			newProducer(t, &fakeFleet{room: 8}, fn, func(c *Config) { c.MaxFailed = 3 }), batch(3, 1, 2, 0))
		require.NoError(t, err)
		require.Len(t, groups, 1)
		var order []int
		for _, f := range sum.failed {
			order = append(order, f.index)
		}
		require.Equal(t, []int{0, 1, 2}, order)
	})
}
