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

func TestSpreadsWorkWithinCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 8), fake("b", 8)
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a, b)
		start := time.Now()
		require.Equal(t, map[string]int{"a": 8, "b": 8}, outcomes(t, f, 16, request(4, 1)))
		require.Equal(t, 8, a.seen().most)
		require.Equal(t, 8, b.seen().most)
		require.Equal(t, 4*time.Second, time.Since(start), "four rounds, two requests per instance")
		s := f.Status()
		require.Equal(t, 2, s.Size)
		require.Equal(t, 16, f.Capacity())
		require.EqualValues(t, 32, s.Instances[0].Tokens)
		require.Equal(t, 4*time.Second, s.Instances[0].Busy)
		require.NoError(t, f.Close())
		require.True(t, a.seen().closed && b.seen().closed)
	})
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint64
		a := fake("a", 1)
		a.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			got = append(got, req.Seed)
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a)
		var wg sync.WaitGroup
		for i := range uint64(6) {
			wg.Go(func() {
				r := request(3, 1)
				r.Seed = i
				_, _, err := f.Generate(t.Context(), r)
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		require.Equal(t, 5, f.Status().Queued)
		wg.Wait()
		require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, got)
		require.NoError(t, f.Close())
	})
}

// A request that avoids the instance that failed it leaves that instance to the requests
// behind it.
func TestAvoidingRequestDoesNotBlockQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := faulty("b", 1, hang)
		a := fake("a", 1)
		a.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			if req.Seed == 8 {
				return nil, errors.New("503")
			}
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, b, a)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, seed := range []uint64{7, 8} { // one for b and one for a
			wg.Go(func() {
				r := request(1, 1)
				r.Seed = seed
				_, _, err := f.Generate(ctx, r)
				require.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
		}
		require.NoError(t, sleep(ctx, time.Second))
		require.Equal(t, 1, f.Status().Queued, "the second waits for b")
		start := time.Now()
		require.Equal(t, map[string]int{"a": 3}, outcomes(t, f, 3, request(1, 1)))
		require.Equal(t, 3*time.Second, time.Since(start))
		cancel()
		wg.Wait()
		require.NoError(t, f.Close())
	})
}

func TestCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := faulty("a", 1, hang)
		f := newFleet(t, nil, a)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 { // some on the instance, some in the queue
			wg.Go(func() {
				_, _, err := f.Generate(ctx, request(1, 1))
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		s := f.Status()
		require.Zero(t, s.Queued)
		require.Zero(t, s.Instances[0].Requests)
		require.Equal(t, Healthy, s.Instances[0].State, "the instance is not at fault if its caller leaves")

		wg.Go(func() {
			_, _, err := f.Generate(t.Context(), request(1, 1))
			require.ErrorIs(t, err, inference.ErrClosed)
		})
		synctest.Wait()
		require.NoError(t, f.Close())
		wg.Wait()
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrClosed)
		require.ErrorIs(t, f.Add(t.Context(), a), inference.ErrClosed)
		require.ErrorIs(t, f.Publish(t.Context(), fakeWeights(2)), inference.ErrClosed)
		require.NoError(t, f.Close())
	})
}
