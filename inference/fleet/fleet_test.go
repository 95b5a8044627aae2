package fleet

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLateJoinerGetsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 1), fake("b", 4)
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a)
		var by map[string]int
		var wg sync.WaitGroup
		wg.Go(func() { by = outcomes(t, f, 10, request(1, 1)) })
		synctest.Wait()
		require.ErrorContains(t, f.Add(t.Context(), fake("a", 0)), "an instance of that name")
		require.NoError(t, f.Add(t.Context(), b))
		wg.Wait()
		require.Equal(t, 8, by["b"])
		require.NoError(t, f.Close())
	})
}

func TestDrainAndRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := fake("a", 2), faulty("b", 2, hang), fake("c", 2)
		f := newFleet(t, nil, a, b, c)
		var by map[string]int
		var wg sync.WaitGroup
		wg.Go(func() { by = outcomes(t, f, 9, request(1, 1)) })
		synctest.Wait()
		require.NoError(t, f.Drain(t.Context(), a))
		calls := a.seen().calls
		require.NoError(t, f.Remove(t.Context(), b), "its requests move to other instances")
		require.True(t, b.seen().closed)
		wg.Wait()
		require.Equal(t, 9, by["a"]+by["c"])
		require.Equal(t, calls, a.seen().calls, "a draining instance gets no new work")
		require.Error(t, f.Drain(t.Context(), b))
		require.Error(t, f.Remove(t.Context(), b))
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Equal(t, map[string]State{"a": Draining, "c": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

// hosted is an instance that reports its cores.
type hosted struct {
	*fakeInstance
	cores int
}

func (h hosted) Cores() int { return h.cores }

// Embedded instances have no cores of their own, and those of instances that do not serve
// do not count.
func TestCores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, fake("embedded", 2), hosted{fake("a", 1), 4}, hosted{fake("b", 1), 2})
		cores, known := f.Cores()
		require.True(t, known)
		require.Equal(t, 6, cores)
		silent := hosted{fake("c", 1), 0}
		require.NoError(t, f.Add(t.Context(), silent))
		_, known = f.Cores()
		require.False(t, known)
		require.NoError(t, f.Drain(t.Context(), silent))
		cores, known = f.Cores()
		require.True(t, known)
		require.Equal(t, 6, cores)
		require.NoError(t, f.Close())
	})
}

func TestCountsTheBusyTimeOfRemovedInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 1), faulty("b", 1, hang)
		f := newFleet(t, func(c *Config) { c.Ahead = 0 }, a)
		outcomes(t, f, 3, request(1, 1))
		require.Equal(t, 3*time.Second, f.Status().Busy)
		require.NoError(t, f.Remove(t.Context(), a))
		require.Equal(t, 3*time.Second, f.Status().Busy)
		require.NoError(t, f.Add(t.Context(), b))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, _, err := f.Generate(ctx, request(1, 1))
		require.Error(t, err)
		require.Equal(t, 5*time.Second, f.Status().Busy)
		var call sync.WaitGroup
		again, end := context.WithCancel(t.Context())
		call.Go(func() { _, _, _ = f.Generate(again, request(1, 1)) })
		<-time.After(time.Second)
		require.NoError(t, f.Remove(t.Context(), b), "while it samples")
		require.Equal(t, 6*time.Second, f.Status().Busy)
		end()
		call.Wait()
		require.NoError(t, f.Close())
	})
}

func TestNotifiesOfStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		a := fake("a", 1)
		f := newFleet(t, func(c *Config) {
			c.Attempts = 1
			c.Notify = func(e Event) { events = append(events, e.String()) }
		}, a)
		a.now(func() { a.generate = fails(io.ErrUnexpectedEOF) })
		for range 3 {
			_, _, err := f.Generate(t.Context(), request(1, 1))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Equal(t, []string{
			"instance a: HEALTHY, was STALE",
			"instance a: SUSPECT, was HEALTHY: unexpected EOF",
			"instance a: DEAD, was SUSPECT: unexpected EOF",
			"fleet: too few instances serve: 0, expected at least 1; waiting up to 2m0s",
			"instance a: HEALTHY, was DEAD",
			"fleet: enough instances serve again",
		}, events)
		require.NoError(t, f.Close())
	})
}
