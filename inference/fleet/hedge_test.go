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

func TestHedgesAStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why error
		a, b := fake("a", 4), fake("b", 4)
		a.generate = func(ctx context.Context, _ inference.Request) ([]inference.Completion, error) {
			<-ctx.Done()
			why = context.Cause(ctx)
			return nil, ctx.Err()
		}
		f := newFleet(t, func(c *Config) { c.HedgeAfter = time.Minute }, a, b)
		start := time.Now()
		out, id, err := f.Generate(t.Context(), request(2, 1))
		require.NoError(t, err)
		require.Equal(t, "b", id)
		require.Len(t, out, 2)
		require.Equal(t, time.Minute+time.Second, time.Since(start))
		synctest.Wait()
		require.ErrorContains(t, why, "another instance answered first")
		s := f.Status()
		require.EqualValues(t, 1, s.Hedges)
		require.Zero(t, s.Retries)
		require.Zero(t, s.Instances[0].Failed)
		require.Equal(t, Healthy, s.Instances[0].State, "slowness is not a fault")
		require.Zero(t, s.Instances[0].Requests)
		require.NoError(t, f.Close())
	})
}

func TestHedgeIsLateOrFails(t *testing.T) {
	for name, second := range map[string]func(context.Context, inference.Request) ([]inference.Completion, error){
		"slower": hang,
		"fails":  fails(errors.New("502")),
		"wrong":  func(context.Context, inference.Request) ([]inference.Completion, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := fake("a", 4), faulty("b", 4, second)
				a.takes = 2 * time.Minute
				f := newFleet(t, func(c *Config) { c.HedgeAfter = time.Minute }, a, b)
				start := time.Now()
				_, id, err := f.Generate(t.Context(), request(1, 1))
				require.NoError(t, err)
				require.Equal(t, "a", id)
				require.Equal(t, 2*time.Minute, time.Since(start))
				synctest.Wait() // the other call has ended
				require.Equal(t, 1, b.seen().calls)
				require.NoError(t, f.Close())
			})
		})
	}
}

// Hedging is off by default and uses only instances that have room.
func TestHedgesOnlyWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := faulty("a", 1, hang), faulty("b", 1, hang)
		f := newFleet(t, func(c *Config) { c.Ahead, c.HedgeAfter = 0, time.Minute }, a, b)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		require.Equal(t, map[string]int{"error": 2}, outcomesIn(ctx, t, f, 2, request(1, 1)))
		require.Zero(t, f.Status().Hedges)
		require.NoError(t, f.Close())

		f = newFleet(t, nil, a)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		_, _, err := f.Generate(ctx, request(1, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, f.Status().Hedges)
		require.NoError(t, f.Close())
	})
}
