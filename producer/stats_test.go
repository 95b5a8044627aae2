package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// A step reports its share of the run's totals. Reward retries between two steps count with
// the second.
func TestStatsCoverOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := Counters{Busy: 5 * time.Second, Instances: 3, Retries: 2, RewardRetries: 4}
		f := &fakeFleet{room: 1, generate: func(_ context.Context, req inference.Request) (
			[]inference.Completion, error) {
			now.Busy += time.Second
			now.Retries += 10
			now.RewardRetries++
			now.Instances--
			return answer(req), nil
		}}
		p := newProducer(t, f, length, nil)
		p.deps.Counters = func() Counters { return now }
		_, _, sum, err := produce(t.Context(), t, p, batch(1, 1))
		require.NoError(t, err)
		require.Equal(t, rollout.Stats{Busy: 2 * time.Second, Instances: 1, Retries: 20, RewardRetries: 6}, sum.Stats)

		now.Busy += time.Hour
		now.Retries += 100
		now.RewardRetries += 7
		_, _, sum, err = produce(t.Context(), t, p, batch(1))
		require.NoError(t, err)
		require.Equal(t, rollout.Stats{Busy: time.Second, Retries: 10, RewardRetries: 8}, sum.Stats)
	})
}

// Prompts without a group are reported in prompt order at the end of the step, however it
// ends.
func TestFailuresAreReported(t *testing.T) {
	for _, may := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			broken := func(ctx context.Context, in reward.Input) (reward.Score, error) {
				if in.Prompt.ID == "p1" {
					return length(ctx, in)
				}
				return reward.Score{}, errors.New("no verdict")
			}
			p := newProducer(t, &fakeFleet{room: 8}, broken, func(c *Config) { c.GroupSize, c.MaxFailed = 1, may })
			var warnings []string
			p.deps.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
			_, _, _, err := produce(t.Context(), t, p, batch(2, 3, 1))
			require.Equal(t, may == 1, errors.Is(err, ErrBudget))
			require.Equal(t, []string{"step 3: gave up on prompt p0: reward of response 0: no verdict",
				"step 3: gave up on prompt p2: reward of response 0: no verdict"}, warnings)
		})
	}
}
