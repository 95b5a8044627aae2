package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet/state"
)

// Below its floor the fleet waits, reports it and continues when enough instances serve.
func TestWaitsBelowItsFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		a, b, c := fake("a", 4), fake("b", 4), fake("c", 4)
		f := newFleet(t, func(c *Config) {
			c.MinServing = 2
			c.Notify = func(e Event) {
				if e.ID == "" {
					said = append(said, e.String())
				}
			}
		}, a, b)
		require.Empty(t, said, "no event at the start")
		require.NoError(t, f.Publish(t.Context(), fakeWeights(1)))
		require.Empty(t, said, "no event during a publish")
		require.NoError(t, f.Remove(t.Context(), b))
		require.Equal(t, []string{"fleet: too few instances serve: 1, expected at least 2; waiting up to 2m0s"}, said)

		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := f.Generate(t.Context(), request(1, 1))
			require.NoError(t, err)
		})
		require.NoError(t, sleep(t.Context(), time.Minute))
		require.Equal(t, 1, f.Status().Queued)
		require.Zero(t, a.seen().calls)
		require.NoError(t, f.Add(t.Context(), c))
		wg.Wait()
		require.Equal(t, time.Minute+time.Second, time.Since(start))
		require.Equal(t, "fleet: enough instances serve again", said[1])

		require.NoError(t, f.Remove(t.Context(), c))
		require.NoError(t, sleep(t.Context(), time.Minute))
		start = time.Now()
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrNoInstance)
		require.ErrorContains(t, err, "1 for 2m0s, expected at least 2")
		require.Equal(t, time.Minute, time.Since(start), "two minutes since too few serve")
		require.Len(t, said, 3)
		_, _, err = f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrNoInstance)
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, f.Close())
	})
}

func TestPublishWaitsForInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil)
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() { require.NoError(t, f.Publish(t.Context(), fakeWeights(1)), "the first instance joins later") })
		require.NoError(t, sleep(t.Context(), 90*time.Second))
		a := fake("a", 4)
		require.NoError(t, f.Add(t.Context(), a))
		wg.Wait()
		require.Equal(t, 90*time.Second, time.Since(start))
		require.NoError(t, f.Remove(t.Context(), a))

		start = time.Now()
		require.ErrorIs(t, f.Publish(t.Context(), fakeWeights(2)), inference.ErrNoInstance)
		require.Equal(t, f.cfg.EmptyWait, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, f.Publish(ctx, fakeWeights(3)), context.DeadlineExceeded)
		wg.Go(func() { require.ErrorIs(t, f.Publish(t.Context(), fakeWeights(4)), inference.ErrClosed) })
		synctest.Wait()
		require.NoError(t, f.Close())
		wg.Wait()
	})
}

// The watchdog abandons an instance if one of its calls does not return in time, and the
// fleet gives it no more work.
func TestWatchdogAbandonsStuckInstance(t *testing.T) {
	for name, stick := range map[string]func(i *probedInstance, stuck func()){
		"generate": func(i *probedInstance, stuck func()) {
			i.generate = func(context.Context, inference.Request) ([]inference.Completion, error) {
				stuck()
				return nil, errors.New("late")
			}
		},
		"publish": func(i *probedInstance, stuck func()) {
			i.publish = func(context.Context, inference.Weights) (string, error) {
				stuck()
				return "sum-2", nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := make(chan struct{})
				a := probed("a", 4)
				b := fake("b", 4)
				f := newFleet(t, nil, a, b)
				stick(a, func() { <-free })
				start := time.Now()
				require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
				require.Equal(t, map[string]int{"b": 2}, outcomes(t, f, 2, request(1, 2)))
				require.WithinDuration(t, start.Add(f.cfg.Watchdog), time.Now(), 2*time.Second)
				require.Equal(t, map[string]State{"a": Retired, "b": Healthy}, states(f))
				require.NoError(t, f.Publish(t.Context(), fakeWeights(3)))
				require.NoError(t, f.Close(), "Close does not wait for the publish")
				close(free)
			})
		})
	}
}

// A booking that is never released, a bug of the fleet itself, does not block requests
// forever.
func TestWatchdogEndsStuckQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, fake("a", 1))
		lost := request(1, 1)
		f.mu.Lock()
		_, err := f.state.Enqueue(time.Now(), state.NewRequest(&lost))
		require.NoError(t, err)
		require.Len(t, f.state.Take().Grants, 1)
		f.mu.Unlock()
		start := time.Now()
		_, _, err = f.Generate(t.Context(), request(1, 1))
		require.ErrorContains(t, err, "watchdog: 1 requests are queued and made no progress for 45m0s")
		require.Equal(t, f.cfg.Watchdog, time.Since(start))
		require.NoError(t, f.Close())
	})
}
