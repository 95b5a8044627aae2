package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

func TestPublishVerifiesChecksums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := fake("a", 4), fake("b", 4), fake("c", 4)
		f := newFleet(t, func(c *Config) { c.MinServing = 2 }, a, b, c)
		a.now(func() { a.publish = publishes("sum-1", nil) }) // reports no error and changes nothing
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)), "two of three hold the weights")
		require.Equal(t, map[string]State{"a": Stale, "b": Healthy, "c": Healthy}, states(f))
		require.Contains(t, f.Status().Instances[0].PublishFail,
			"publish version 2 to a: instance reports checksum sum-1, expected sum-2")

		b.now(func() {
			b.publish = func(ctx context.Context, _ inference.Weights) (
				string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}
		})
		start := time.Now()
		err := f.Publish(t.Context(), fakeWeights(3))
		require.ErrorIs(t, err, inference.ErrNoInstance)
		require.ErrorContains(t, err,
			"publish version 3: too few instances serve: 1, expected at least 2\npublish version 3 to ")
		require.Equal(t, f.cfg.PublishTimeout+f.cfg.EmptyWait, time.Since(start))

		// A failed instance does not delay the next publish.
		a.now(func() { a.publish = nil })
		start = time.Now()
		require.NoError(t, f.Publish(t.Context(), fakeWeights(4)))
		require.Zero(t, time.Since(start))
		require.NoError(t, f.Close())
	})
}

func TestPublishEndsReadersOfOlderWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 4), fake("b", 4)
		f := newFleet(t, nil, a)
		reading := map[int64]bool{}
		var mu sync.Mutex
		b.publish = func(ctx context.Context, w inference.Weights) (string, error) {
			mu.Lock()
			reading[w.Version()] = true
			mu.Unlock()
			defer func() { mu.Lock(); delete(reading, w.Version()); mu.Unlock() }()
			if w.Version() == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			b.now(func() { b.version = w.Version() })
			return w.Checksum(), nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, f.Add(t.Context(), b), "the running publish includes it") })
		synctest.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Stale}, states(f))
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Empty(t, reading)
		wg.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

func TestPublishFailsQueuedRequestsOfOlderVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fake("a", 1)
		a.takes = time.Hour / 4
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a)
		var wg sync.WaitGroup
		var errs [2]error
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = f.Generate(t.Context(), request(1, 1)) })
			synctest.Wait()
		}
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		wg.Wait()
		require.ErrorIs(t, errs[0], inference.ErrStale, "sampled under version 1, answered as version 2")
		require.ErrorIs(t, errs[1], inference.ErrStale)
		require.Equal(t, Healthy, states(f)["a"], "faults under older weights do not count")
		require.Zero(t, f.Status().Retries, "no second attempt")
		require.NoError(t, f.Close())
	})
}
