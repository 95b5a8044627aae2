package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// limited returns an instance that refuses work until a time, and asks callers to wait as
// long.
func limited(id string, until time.Time) *fakeInstance {
	i := fake(id, 4)
	i.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
		if left := time.Until(until); left > 0 {
			return nil, &inference.BusyError{After: left, Err: errors.New("status 429")}
		}
		return i.answer(req), sleep(ctx, i.takes)
	}
	return i
}

func TestUsesOthersWhileInstanceRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := limited("a", time.Now().Add(30*time.Second)), fake("b", 4)
		f := newFleet(t, func(c *Config) { c.Attempts = 1 }, a, b)
		require.Equal(t, map[string]int{"b": 40}, outcomes(t, f, 40, request(1, 1)))
		s := f.Status()
		require.Zero(t, s.Retries)
		require.Equal(t, Healthy, s.Instances[0].State)
		require.Zero(t, s.Instances[0].Failed)
		pass(t, 30*time.Second)
		by := outcomes(t, f, 40, request(1, 1))
		require.Equal(t, 40, by["a"]+by["b"])
		require.Positive(t, by["a"])
		require.NoError(t, f.Close())
	})
}

func TestWaitsForEarliestIfAllRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a, b := limited("a", start.Add(50*time.Second)), limited("b", start.Add(20*time.Second))
		f := newFleet(t, func(c *Config) { c.Attempts, c.EmptyWait = 1, 10*time.Second }, a, b)
		require.Equal(t, map[string]int{"b": 4}, outcomes(t, f, 4, request(1, 1)))
		require.Equal(t, 21*time.Second, time.Since(start))

		ctx, wait := context.WithTimeout(t.Context(), time.Second)
		defer wait()
		b.now(func() { b.generate = limited("b", start.Add(time.Hour)).generate })
		require.Equal(t, map[string]int{"error": 2}, outcomesIn(ctx, t, f, 2, request(1, 1)),
			"waiting ends with the caller")
		require.NoError(t, f.Close())
	})
}
