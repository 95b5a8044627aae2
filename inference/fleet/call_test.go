package fleet

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
)

func TestRetriesFaultOnAnotherInstance(t *testing.T) {
	boom := errors.New("connection reset")
	wrong := func(change func(*inference.Completion)) func(context.Context, inference.Request) (
		[]inference.Completion, error) {
		return func(_ context.Context, req inference.Request) ([]inference.Completion, error) {
			out := make([]inference.Completion, req.N)
			for j := range out {
				out[j] = inference.Completion{IDs: []int32{1}, Logprobs: []float32{-1}, Version: req.Version}
			}
			change(&out[0])
			return out, nil
		}
	}
	for name, c := range map[string]struct {
		generate func(context.Context, inference.Request) ([]inference.Completion, error)
		state    State
	}{
		"dies during the call": {func(ctx context.Context, _ inference.Request) ([]inference.Completion, error) {
			return nil, errors.Join(sleep(ctx, time.Second), boom)
		}, Dead},
		"hangs": {hang, Dead},
		"too few responses": {func(context.Context, inference.Request) (
			[]inference.Completion, error) {
			return nil, nil
		}, Dead},
		"no log-probabilities": {wrong(func(c *inference.Completion) { c.Logprobs = nil }), Dead},
		"not a number":         {wrong(func(c *inference.Completion) { c.Logprobs[0] = float32(math.NaN()) }), Dead},
		"empty response":       {wrong(func(c *inference.Completion) { c.IDs, c.Logprobs = nil, nil }), Dead},
		"unknown token":        {wrong(func(c *inference.Completion) { c.IDs[0] = 100 }), Dead},
		"negative token":       {wrong(func(c *inference.Completion) { c.IDs[0] = -1 }), Dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := faulty("a", 4, c.generate), fake("b", 4)
				f := newFleet(t, func(c *Config) { c.Vocab = 100 }, a, b)
				require.Equal(t, map[string]int{"b": 12}, outcomes(t, f, 12, request(1, 1)), "no request is lost")
				require.Equal(t, c.state, states(f)["a"])
				require.Positive(t, f.Status().Retries)
				// A dead instance returns with the next verified weights.
				a.now(func() { a.generate = nil })
				require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
				synctest.Wait()
				require.Equal(t, Healthy, states(f)["a"])
				require.NoError(t, f.Close())
			})
		})
	}
}

func TestSuspectGetsOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := fake("a", 8)
		first := true
		a.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			if first {
				first = false
				return nil, errors.New("503")
			}
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, nil, a)
		_, _, err := f.Generate(t.Context(), inference.Request{})
		require.ErrorIs(t, err, inference.ErrInvalid)
		require.EqualValues(t, 1, f.Status().Invalid)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, _, err := f.Generate(t.Context(), request(1, 1))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		require.Equal(t, Suspect, states(f)["a"])
		require.Equal(t, 1, f.Status().Instances[0].Requests)
		wg.Wait()
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}

func TestRefusesAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake("a", 4), fake("b", 4)
		f := newFleet(t, nil, a, b)
		_, _, err := f.Generate(t.Context(), request(1, 2))
		require.ErrorIs(t, err, inference.ErrStale)

		// a restarted with its base weights and takes no others.
		a.now(func() { a.version = 0 })
		a.now(func() { a.publish = publishes("", errors.New("out of memory")) })
		require.Equal(t, map[string]int{"b": 8}, outcomes(t, f, 8, request(1, 1)))
		require.Equal(t, Stale, states(f)["a"])
		s := f.Status()
		require.GreaterOrEqual(t, s.Stale, int64(2))
		require.Equal(t, s.Stale-1, s.Retries,
			"each discarded answer causes one retry; the first request was never sent")

		// The next publish tries a again without waiting for it.
		a.now(func() { a.publish = nil })
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		synctest.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

func TestHidesStaleInstanceFromCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := faulty("a", 4, fails(fmt.Errorf("holds 0: %w", inference.ErrStale)))
		f := newFleet(t, func(c *Config) { c.Attempts = 3 }, a)
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorContains(t, err, "generate on a: holds 0: stale weights")
		require.ErrorIs(t, err, inference.ErrNoInstance, "retried until the fleet retires the instance")
		require.NotErrorIs(t, err, inference.ErrStale)
		require.NoError(t, f.Close())
	})
}

func TestLosingAllInstancesEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := faulty("a", 4, fails(errors.New("EOF"))), faulty("b", 4, fails(errors.New("EOF")))
		f := newFleet(t, func(c *Config) { c.Attempts = 100 }, a, b)
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrNoInstance)
		require.Equal(t, map[string]State{"a": Dead, "b": Dead}, states(f))
		require.Zero(t, f.Capacity())
		require.NoError(t, f.Close())
	})
}

func TestLimitsAttemptsAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := faulty("a", 4, fails(errors.New("502")))
		f := newFleet(t, func(c *Config) {
			c.Attempts, c.DeadAfter, c.Backoff, c.BackoffMax = 4, 100, time.Second, 3*time.Second
		}, a)
		start := time.Now()
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorContains(t, err, "failed after 4 attempts: generate on a: 502")
		require.Equal(t, 6*time.Second, time.Since(start), "1 + 2 + 3 seconds of pauses")
		require.Equal(t, 4, a.seen().calls)
		require.EqualValues(t, 3, f.Status().Retries, "tries after the first")

		a.now(func() { a.generate = fails(fmt.Errorf("prompt of 9 tokens: %w", inference.ErrInvalid)) })
		_, _, err = f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrInvalid)
		require.Equal(t, 5, a.seen().calls, "a fault of the data is not retried")
		require.NoError(t, f.Close())
	})
}

// If an instance calls a request invalid, a second one is asked. If that one answers, the
// first is at fault. If both agree, or there is only one, the request is invalid.
func TestConfirmsInvalidRequestOnSecondInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		invalid := fmt.Errorf("%w: prompt of 8 tokens, expected 4 at most", inference.ErrInvalid)
		a, b := faulty("a", 4, fails(invalid)), faulty("b", 4, nil)
		f := newFleet(t, nil, a, b)
		require.Equal(t, map[string]int{"b": 8}, outcomes(t, f, 8, request(1, 1)))
		require.NotEqual(t, Healthy, states(f)["a"])
		require.Zero(t, f.Status().Invalid)
		require.NoError(t, f.Close())

		a, b = faulty("a", 4, fails(invalid)), faulty("b", 4, fails(invalid))
		f = newFleet(t, nil, a, b)
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrInvalid)
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		s := f.Status()
		require.EqualValues(t, 1, s.Invalid)
		require.EqualValues(t, 1, s.Retries)
		require.NoError(t, f.Remove(t.Context(), b))
		_, _, err = f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, inference.ErrInvalid)
		require.NoError(t, f.Close())
	})
}

// The fleet passes on early responses that it would accept in an answer, from each instance
// that a request reaches, while the request runs.
func TestEndedPassesOnGoodResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := inference.Completion{IDs: []int32{5}, Logprobs: []float32{-1}, Version: 1, Checksum: "sum-1"}
		spoilt := func(spoil func(c *inference.Completion)) inference.Completion {
			c := good
			spoil(&c)
			return c
		}
		late := make(chan func(int, inference.Completion), 1)
		a := faulty("a", 2, func(_ context.Context, req inference.Request) ([]inference.Completion, error) {
			req.Ended(1, good)
			req.Ended(-1, good)
			req.Ended(2, good)
			req.Ended(0, spoilt(func(c *inference.Completion) { c.Version = 2 }))
			req.Ended(0, spoilt(func(c *inference.Completion) { c.Checksum = "sum-9" }))
			req.Ended(0, spoilt(func(c *inference.Completion) { c.IDs = []int32{100} }))
			req.Ended(0, spoilt(func(c *inference.Completion) { c.Logprobs = nil }))
			late <- req.Ended
			return nil, errors.New("fault")
		})
		b := faulty("b", 1, func(_ context.Context, req inference.Request) ([]inference.Completion, error) {
			req.Ended(0, good)
			return []inference.Completion{good, good}, nil
		})
		f := newFleet(t, func(c *Config) { c.Vocab = 100 }, a)
		var told []int
		req := request(2, 1)
		req.Ended = func(index int, c inference.Completion) {
			require.Equal(t, good, c)
			told = append(told, index)
		}
		require.NoError(t, f.Add(t.Context(), b))
		for len(told) == 0 || told[0] != 1 { // until a is the first to get the request
			told = nil
			_, id, err := f.Generate(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, "b", id)
		}
		require.Equal(t, []int{1, 0}, told)
		(<-late)(1, good)
		require.Equal(t, []int{1, 0}, told, "the call has ended")
		require.NoError(t, f.Close())
	})
}
