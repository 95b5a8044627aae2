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
)

func TestRepublishesToRestartedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fake("a", 4)
		f := newFleet(t, nil, a)
		a.now(func() { a.version = 0 })
		require.Equal(t, map[string]int{"a": 4}, outcomes(t, f, 4, request(1, 1)))
		require.Equal(t, []int64{1, 1}, a.seen().published)
		require.Positive(t, f.Status().Stale)
		require.Equal(t, f.Status().Stale, f.Status().Retries, "one retry per discarded answer")
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}

// Another publisher gives an instance the same version with other values. Only the checksum
// reveals it.
func TestDetectsOtherWeightsOfSameVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, holds := fake("a", 4), ""
		a.publish = func(_ context.Context, w inference.Weights) (string, error) {
			holds = w.Checksum()
			return holds, nil
		}
		a.generate = func(_ context.Context, req inference.Request) ([]inference.Completion, error) {
			return []inference.Completion{{IDs: []int32{7}, Logprobs: []float32{-1}, Version: req.Version,
				Checksum: holds}}, nil
		}
		f := newFleet(t, nil, a)
		holds = "another trainer's"
		out, _, err := f.Generate(t.Context(), request(1, 1))
		require.NoError(t, err)
		require.Equal(t, "sum-1", out[0].Checksum, "the weights are published again")
		require.EqualValues(t, 1, f.Status().Stale)
		require.EqualValues(t, 1, f.Status().Retries)
		require.Equal(t, 1, f.Status().Instances[0].Restarts)
		require.NoError(t, f.Close())
	})
}

func TestProbesAndVerifiesDeadInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("connection refused")
		a := probed("a", 4)
		a.probe = func(context.Context) error { return down }
		b := fake("b", 4)
		f := newFleet(t, func(c *Config) { c.DeadAfter = 1 }, a, b)
		a.now(func() { a.generate = fails(down) })
		require.Equal(t, map[string]int{"b": 2}, outcomes(t, f, 2, request(1, 1)))
		require.Equal(t, map[string]State{"a": Dead, "b": Healthy}, states(f))
		pass(t, time.Minute)
		probes, published := a.counts()
		require.InDelta(t, 12, probes, 1)
		require.Equal(t, 1, published)

		// It answers probes but takes no weights: a probe alone is not enough.
		a.now(func() {
			a.probe = func(context.Context) error { return nil }
			a.publish = publishes("sum-0", nil)
		})
		pass(t, 20*time.Second)
		require.Equal(t, Dead, states(f)["a"])
		restarts := f.Status().Instances[0].Restarts
		require.InDelta(t, 5, restarts, 1, "its own failure and each failed publish count")

		a.now(func() { a.publish, a.generate = nil, nil })
		pass(t, 5*time.Second)
		require.Equal(t, Healthy, states(f)["a"])
		probes, published = a.counts()
		require.Equal(t, 2, published)
		pass(t, time.Minute)
		still, _ := a.counts()
		require.Equal(t, probes, still, "an instance that serves is not probed")

		// It can die again and hang when probed.
		a.now(func() {
			a.generate, a.probe = fails(down), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		})
		require.Equal(t, map[string]int{"b": 2}, outcomes(t, f, 2, request(1, 1)))
		pass(t, time.Minute)
		more, _ := a.counts()
		require.InDelta(t, probes+4, more, 1, "one per 15 seconds: the pause and the probe")
		a.now(func() { a.generate, a.probe = nil, func(context.Context) error { return nil } })
		pass(t, time.Minute)
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}

func TestRetiresInstanceThatFailsTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := probed("a", 4)
		a.generate = fails(errors.New("EOF"))
		b := fake("b", 4)
		f := newFleet(t, func(c *Config) { c.DeadAfter, c.MaxRestarts = 1, 2 }, b)
		require.NoError(t, f.Add(t.Context(), a))
		for range 3 {
			require.Equal(t, Healthy, states(f)["a"])
			require.Equal(t, map[string]int{"b": 3}, outcomes(t, f, 3, request(1, 1)))
			pass(t, time.Minute)
		}
		require.Equal(t, Retired, states(f)["a"])
		probes, published := a.counts()
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		pass(t, time.Hour)
		require.Equal(t, Retired, states(f)["a"])
		probesNow, publishedNow := a.counts()
		require.Equal(t, []int{probes, published}, []int{probesNow, publishedNow})

		again := fake("a", 4)
		require.NoError(t, f.Add(t.Context(), again), "it may join again")
		require.True(t, a.seen().closed)
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		require.Equal(t, 8, f.Capacity())
		require.ErrorContains(t, f.Remove(t.Context(), a), "not in the fleet")
		require.ErrorContains(t, f.Drain(t.Context(), a), "not in the fleet")
		require.False(t, f.Has(a))
		require.True(t, f.Has(again))
		require.Equal(t, Healthy, states(f)["a"], "calls on the removed instance do not affect the new one")
		require.NoError(t, f.Close())
	})
}

// Publishes that fail in each step count as one failure, however long the outage lasts.
func TestCountsAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 4), fake("b", 4)
		f := newFleet(t, func(c *Config) { c.MaxRestarts = 1 }, a, b)
		a.now(func() { a.publish = publishes("", errors.New("no route to host")) })
		for version := int64(2); version < 20; version++ {
			require.NoError(t, f.Publish(t.Context(), fakeWeights(version)))
			synctest.Wait()
		}
		require.Equal(t, Stale, states(f)["a"])
		require.Equal(t, 1, f.Status().Instances[0].Restarts)
		a.now(func() { a.publish = nil })
		require.NoError(t, f.Publish(t.Context(), fakeWeights(20)))
		synctest.Wait()
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}

// An instance that joins in the middle of a step gets the step's weights before any work.
func TestJoinerGetsWeightsBeforeWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 1), fake("b", 4)
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a)
		require.NoError(t, f.Publish(t.Context(), fakeWeights(7)))
		b.publish = func(ctx context.Context, w inference.Weights) (string, error) {
			require.NoError(t, sleep(ctx, 3*time.Second))
			require.Zero(t, b.seen().calls, "no request before the weights")
			b.now(func() { b.version = w.Version() })
			return w.Checksum(), nil
		}
		b.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			require.EqualValues(t, 7, b.seen().version)
			return b.answer(req), sleep(ctx, time.Second)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			by := outcomes(t, f, 18, request(1, 7))
			require.Equal(t, map[string]int{"a": 6, "b": 12}, by, "a alone takes three, then five per second in all")
		})
		synctest.Wait()
		require.NoError(t, f.Add(t.Context(), b))
		wg.Wait()
		require.NoError(t, f.Close())
	})
}
