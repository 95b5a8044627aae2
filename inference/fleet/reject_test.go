package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// exactInstance is an instance that computes the trainer's bits, or says so.
type exactInstance struct {
	*fakeInstance
	exact bool
}

func (i exactInstance) Exact() bool { return i.exact }

// exactly lets callers reject answers.
func exactly(c *Config) { c.Exact, c.MaxRestarts = true, 2 }

// answered returns an answer of f's only instance.
func answered(t *testing.T, f *Fleet) []inference.Completion {
	t.Helper()
	out, _, err := f.Generate(t.Context(), request(2, 1))
	require.NoError(t, err)
	return out
}

// A rejected answer takes its instance out of service until it has taken the weights again.
// An instance that is rejected too often is retired.
func TestRejectedAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := exactInstance{fake("a", 4), true}
		var events []Event
		f := newFleet(t, func(c *Config) {
			exactly(c)
			c.Notify = func(e Event) { events = append(events, e) }
		}, a)
		out := [][]inference.Completion{answered(t, f), answered(t, f), answered(t, f)}
		a.now(func() { a.fakeInstance.publish = publishes("", errors.New("busy")) })
		events = nil
		out[0][1].Reject(errors.New("other bits"))
		require.Equal(t, Stale, states(f)["a"])
		require.Equal(t, "instance a: STALE, was HEALTHY: stale weights: other bits", events[0].String())
		a.now(func() { a.fakeInstance.publish = nil })
		require.NoError(t, f.Publish(t.Context(), fakeWeights(1)))

		out[0][0].Reject(errors.New("other bits"))
		out[1][0].Reject(errors.New("other bits"))
		require.Equal(t, Healthy, states(f)["a"], "it has taken weights since these answers")
		for _, want := range []State{Healthy, Retired} {
			answered(t, f)[0].Reject(errors.New("other bits"))
			synctest.Wait()
			require.Equal(t, want, states(f)["a"])
		}
		require.ErrorContains(t, events[len(events)-2].Err,
			"failed 3 times, expected at most 2: stale weights: other bits")
		require.NoError(t, f.Close())
		out[2][0].Reject(errors.New("other bits"))
	})
}

// A rejected answer does not disturb the other instances or the requests in flight.
func TestRejectedAmongOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := exactInstance{fake("a", 4), true}, exactInstance{fake("b", 4), true}
		f := newFleet(t, exactly, a, b)
		out, by, err := f.Generate(t.Context(), request(1, 1))
		require.NoError(t, err)
		require.Equal(t, "a", by)
		done := make(chan map[string]int)
		go func() { done <- outcomes(t, f, 6, request(1, 1)) }()
		pass(t, time.Second/2)
		out[0].Reject(errors.New("other bits"))
		require.Equal(t, map[string]int{"a": 3, "b": 3}, <-done)
		require.Equal(t, []int64{1, 1}, a.seen().published)
		require.Equal(t, []int64{1}, b.seen().published)
		require.NoError(t, f.Close())
	})
}

// Answers may be rejected only if the instance and the caller compute the same bits.
func TestOnlyExactAnswersMayBeRejected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fleet, instance, may bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, func(cfg *Config) { cfg.Exact = c.fleet }, exactInstance{fake("a", 4), c.instance})
			require.Equal(t, c.may, answered(t, f)[1].Reject != nil)
			require.NoError(t, f.Close())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, exactly, fake("embedded", 4))
		require.Nil(t, answered(t, f)[0].Reject, "it shares memory with the trainer")
		require.NoError(t, f.Close())
	})
}
