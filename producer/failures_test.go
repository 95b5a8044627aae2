package producer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
)

func TestRewardFailures(t *testing.T) {
	boom := errors.New("judge is out")
	for name, c := range map[string]struct {
		score scorer
		want  string
	}{
		"fails": {func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{}, boom },
			"judge is out"},
		"panics": {func(context.Context, reward.Input) (reward.Score, error) { panic("index out of range") },
			"index out of range"},
		"not a number": {func(context.Context, reward.Input) (
			reward.Score, error) {
			return reward.Score{Value: math.NaN()}, nil
		}, "reward is NaN"},
		"infinite": {func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: math.Inf(1)}, nil
		}, "reward is +Inf"},
		"too large": {func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: -1e300}, nil
		}, "reward is -1e+300, expected a number from -1000000 to 1000000"},
		"a part that is not a number": {func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: 1, Parts: map[string]float64{"style": math.NaN()}}, nil
		}, "part style is NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var mu sync.Mutex
				fn := func(ctx context.Context, in reward.Input) (reward.Score, error) {
					if in.Prompt.ID != "p1" || in.Text != "[1]" {
						return length(ctx, in)
					}
					mu.Lock()
					tries++
					mu.Unlock()
					return c.score(ctx, in)
				}
				p := newProducer(t, &fakeFleet{room: 8}, fn, func(cfg *Config) { cfg.Gate = true })
				got, _, sum, err := produce(t.Context(), t, p, batch(1, 1, 1))
				require.NoError(t, err, "one failure is within the budget")
				require.Equal(t, 1, tries, "the reward itself decides whether to retry")
				require.Len(t, got, 2)
				require.Equal(t, []int{0, 2}, []int{got[0].index, got[1].index})
				require.Len(t, sum.failed, 1)
				require.Equal(t, "p1", sum.failed[0].prompt.ID)
				require.Equal(t, 1, sum.failed[0].index)
				require.False(t, sum.failed[0].lost)
				require.ErrorContains(t, sum.failed[0].err, "prompt p1: reward of response 1: ")
				require.ErrorContains(t, sum.failed[0].err, c.want)

				p.cfg.MaxFailed = 0
				_, _, _, err = produce(t.Context(), t, p, batch(1, 1, 1))
				require.ErrorIs(t, err, ErrBudget)
				require.ErrorContains(t, err, "produce step 3: too many groups failed: prompt or reward failed for "+
					"1 of 3, more than the 0 allowed: prompt p1")
			})
		})
	}
}

// Responses that wait hours for a reward that scores one at a time do not fail, and the
// fleet keeps sampling.
func TestSlowRewardBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		fn := func(ctx context.Context, in reward.Input) (reward.Score, error) {
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return reward.Score{}, ctx.Err()
			}
			return reward.Score{Value: 1}, sleep(ctx, 15*time.Minute)
		}
		f := &fakeFleet{room: 2}
		p := newProducer(t, f, fn, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, _, sum, err := produce(t.Context(), t, p, batch(1, 1, 1, 1, 1, 1))
			require.NoError(t, err)
			require.Len(t, got, 6)
			require.Empty(t, sum.failed)
			require.Equal(t, 2, f.most)
		})
		<-time.After(4 * time.Second) // of the bubble's clock
		synctest.Wait()
		require.Len(t, f.calls, 6)
		require.Zero(t, f.now())
		wg.Wait()
	})
}

func TestFleetFailures(t *testing.T) {
	only := func(bad int32, err error) func(context.Context, inference.Request) ([]inference.Completion, error) {
		return func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			if req.PromptIDs[0] == bad {
				return nil, err
			}
			return answer(req), sleep(ctx, time.Second)
		}
	}
	for name, c := range map[string]struct {
		err    error
		change func(*Config)
		want   error // of Wait
		lost   bool
	}{
		"invalid prompt within budget": {inference.ErrInvalid, nil, nil, false},
		"invalid prompt":               {inference.ErrInvalid, func(c *Config) { c.MaxFailed = 0 }, ErrBudget, false},
		"lost":                         {inference.ErrNoInstance, nil, ErrBudget, true},
		"lost within budget":           {inference.ErrNoInstance, func(c *Config) { c.MaxLost = 1 }, nil, true},
		"stale": {inference.ErrStale, func(c *Config) { c.MaxLost = 9 },
			inference.ErrStale, true},
		"closed": {inference.ErrClosed, func(c *Config) { c.MaxLost = 9 }, inference.ErrClosed, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFleet{room: 8, generate: only(5, fmt.Errorf("no: %w", c.err))}
				got, _, sum, err := produce(t.Context(), t, newProducer(t, f, length, c.change), batch(1, 5, 2))
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
					return
				}
				require.NoError(t, err)
				require.Len(t, got, 2)
				require.Len(t, sum.failed, 1)
				require.Equal(t, c.lost, sum.failed[0].lost)
				require.ErrorIs(t, sum.failed[0].err, c.err)
			})
		})
	}
}

func TestStepWithoutGroupsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8, generate: func(context.Context, inference.Request) ([]inference.Completion, error) {
			return nil, inference.ErrInvalid
		}}
		p := newProducer(t, f, length, func(c *Config) { c.MaxFailed = 100 })
		_, _, _, err := produce(t.Context(), t, p, batch(1, 1))
		require.ErrorIs(t, err, ErrBudget)
		require.ErrorContains(t, err, "all 2")
	})
}

func TestResponsesOfAnotherVersionEndTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8, generate: func(_ context.Context, req inference.Request) (
			[]inference.Completion, error) {
			out := answer(req)
			out[1].Version--
			return out, nil
		}}
		got, _, _, err := produce(t.Context(), t, newProducer(t, f, length, nil), batch(1))
		require.ErrorIs(t, err, inference.ErrStale)
		require.ErrorContains(t, err, "fake returned a response of version 6, expected 7")
		require.Empty(t, got)
	})
}

func TestStepEndsWithItsContext(t *testing.T) {
	hang := func(ctx context.Context, _ reward.Input) (reward.Score, error) {
		<-ctx.Done()
		return reward.Score{}, ctx.Err()
	}
	for name, c := range map[string]struct {
		score    scorer
		seconds  []int32
		consumes bool
	}{
		"while it samples":           {length, []int32{1, 100, 100}, true},
		"while it scores":            {hang, []int32{1, 1}, true},
		"while nobody reads":         {length, []int32{1, 1, 100}, false},
		"while it waits for a fleet": {length, make([]int32, 40), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := errors.New("interrupted")
				ctx, cancel := context.WithCancelCause(t.Context())
				f := &fakeFleet{room: 2}
				if len(c.seconds) == 40 {
					f.generate = func(ctx context.Context, _ inference.Request) ([]inference.Completion, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				s := newProducer(t, f, c.score, nil).Start(ctx, batch(c.seconds...))
				var wg sync.WaitGroup
				if c.consumes {
					wg.Go(func() {
						for range s.Groups() {
						}
					})
				}
				<-time.After(10 * time.Second) // of the bubble's clock
				synctest.Wait()
				cancel(stop)
				_, err := s.Wait()
				wg.Wait()
				require.ErrorIs(t, err, stop)
				left := 0
				for range s.Groups() { // closed
					left++
				}
				if !c.consumes {
					require.Equal(t, 2, left)
				}
			})
		})
	}
}
