package simulate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/rollout"
)

type weights int64

func (w weights) Version() int64                   { return int64(w) }
func (w weights) Checksum() string                 { return fmt.Sprint("sum-", int64(w)) }
func (w weights) WriteSafetensors(io.Writer) error { panic("weights are not read") }

// instance returns an instance of spec that holds version 1.
func instance(t *testing.T, clock *Clock, id, spec string) *Instance {
	t.Helper()
	c, err := Parse(spec)
	require.NoError(t, err)
	c.ID = id
	i, err := New(c, clock)
	require.NoError(t, err)
	sum, err := i.Publish(t.Context(), weights(1))
	require.NoError(t, err)
	require.Equal(t, "sum-1", sum)
	return i
}

func request(seed uint64, n int, prompt ...int32) inference.Request {
	return inference.Request{PromptIDs: prompt, N: n, Seed: seed, Version: 1,
		Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 1 << 15}}
}

// With two slots, responses of 10 tokens and prompts of 10 tokens, both at 10
// tokens per second, each request's time can be worked out by hand.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a", "lengths=fixed:10,tokens_per_second=10,prefill_tokens_per_second=10,slots=2")
		require.Equal(t, 2, i.Capacity())
		prompt := make([]int32, 10)
		start := time.Now()
		var wg sync.WaitGroup
		ask := func(n int, want time.Duration) {
			wg.Go(func() {
				out, err := i.Generate(t.Context(), request(1, n, prompt...))
				require.NoError(t, err)
				require.Len(t, out, n)
				require.Equal(t, want, time.Since(start))
			})
			synctest.Wait()
		}
		ask(1, 3*time.Second) // its prompt runs until 1 s, the next one until 2 s; then it grows
		// one grows from 2 s; the other gets a slot at 3 s and pauses until the third prompt has run
		ask(2, 5*time.Second)
		ask(1, 5*time.Second) // its prompt runs from 3 s, when a slot is free, until 4 s
		wg.Wait()
		require.Equal(t, Stats{PromptTokens: 30, Tokens: 40, Busy: 4 * time.Second, Prefill: 3 * time.Second},
			i.Stats())
		require.NoError(t, i.Close())
	})
}

// Simulated responses stay the same across releases.
func TestDrawsGolden(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint64(0xe220a8397b1dcdaf), mix(0))
	require.Equal(t, uint64(0x22118258a9d111a0), mix(12345))
	require.Equal(t, uint64(0x471f793df6fbdf77), hashIDs([]int32{1, 2, -3}))
}

// Tokens and lengths depend only on seed, prompt and index, not on the instance,
// its load or the number of responses.
func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := NewClock()
		a := instance(t, clock, "a", "lengths=lognormal:50,0.7,slots=3,vocab=1000")
		b := instance(t, clock, "b", "lengths=lognormal:50,0.7,slots=64,vocab=1000,tokens_per_second=1000")
		generate := func(i *Instance, req inference.Request) []inference.Completion {
			out, err := i.Generate(t.Context(), req)
			require.NoError(t, err)
			for _, c := range out {
				require.Len(t, c.Logprobs, len(c.IDs))
				require.EqualValues(t, 1, c.Version)
				require.Less(t, slices.Max(c.IDs), int32(1000))
				require.GreaterOrEqual(t, slices.Min(c.IDs), int32(0))
				require.EqualValues(t, Logprob, slices.Min(c.Logprobs))
			}
			return out
		}
		want := generate(a, request(1, 8, 5, 6))
		require.Equal(t, want, generate(b, request(1, 8, 5, 6)))
		require.Equal(t, want[:3], generate(b, request(1, 3, 5, 6)))
		rest := request(1, 3, 5, 6)
		rest.FirstIndex = 5
		require.Equal(t, want[5:], generate(b, rest))
		require.NotEqual(t, want[0].IDs, want[1].IDs)
		require.NotEqual(t, want, generate(b, request(2, 8, 5, 6)))
		require.NotEqual(t, want, generate(b, request(1, 8, 5, 7)))

		short := request(1, 8, 5, 6)
		short.Sampling.MaxTokens = 40
		short.Sampling.StopIDs = []int32{999}
		cut := 0
		for k, c := range generate(b, short) {
			n := len(c.IDs)
			if len(want[k].IDs) > 40 {
				cut++
				require.Equal(t, want[k].IDs[:40], c.IDs)
				require.Equal(t, rollout.Length, c.Finish)
				continue
			}
			require.Equal(t, want[k].IDs[:n-1], c.IDs[:n-1])
			require.EqualValues(t, 999, c.IDs[n-1])
			require.Equal(t, rollout.Stop, c.Finish)
		}
		require.Positive(t, cut)
	})
}

func TestStreamMatchesGenerate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock := NewClock()
		i := instance(t, clock, "a", "lengths=uniform:5,60,slots=2,tokens_per_second=100")
		want, err := i.Generate(t.Context(), request(3, 5, 1, 2, 3))
		require.NoError(t, err)
		start := time.Now()
		got := make([]inference.Completion, 5)
		deltas, last := 0, time.Duration(0)
		out, err := i.Stream(t.Context(), request(3, 5, 1, 2, 3), func(d inference.Delta) {
			require.NotEmpty(t, d.IDs)
			require.Len(t, d.Logprobs, len(d.IDs))
			got[d.Index].IDs = append(got[d.Index].IDs, d.IDs...)
			got[d.Index].Logprobs = append(got[d.Index].Logprobs, d.Logprobs...)
			// Two grow at once, one token per 10 ms each.
			total := 0
			for _, c := range got {
				total += len(c.IDs)
			}
			require.LessOrEqual(t, total, int(2*time.Since(start)/(10*time.Millisecond)))
			deltas, last = deltas+1, time.Since(start)
		})
		require.NoError(t, err)
		require.Equal(t, want, out)
		for k := range got {
			require.Equal(t, want[k].IDs, got[k].IDs)
			require.Equal(t, want[k].Logprobs, got[k].Logprobs)
		}
		require.Greater(t, deltas, 50)
		require.Equal(t, last, time.Since(start))
	})
}

// Ended is called for each response when it ends, except for the last.
func TestEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a",
			"lengths=uniform:5,60,tokens_per_second=1,prefill_tokens_per_second=0,slots=8")
		req := request(3, 6, 1, 2)
		want, err := i.Generate(t.Context(), req)
		require.NoError(t, err)
		start := time.Now()
		at := map[int]time.Duration{}
		req.Ended = func(index int, c inference.Completion) {
			require.Equal(t, want[index], c)
			at[index] = time.Since(start)
		}
		got, err := i.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Len(t, at, 5)
		for index, after := range at {
			require.Equal(t, time.Duration(len(want[index].IDs))*time.Second, after)
		}
		require.NoError(t, i.Close())
	})
}

func TestPublishEndsRunningRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a",
			"lengths=fixed:100,tokens_per_second=10,prefill_tokens_per_second=0,slots=1,publish_seconds=5")
		start := time.Now()
		errs := make(chan error, 3)
		any1 := request(1, 1, 1)
		any1.Version = 0
		for _, req := range []inference.Request{request(1, 1, 1), request(2, 1, 1), any1} {
			go func() {
				_, err := i.Generate(t.Context(), req)
				errs <- err
			}()
			synctest.Wait()
		}
		sum, err := i.Publish(t.Context(), weights(2))
		require.NoError(t, err)
		require.Equal(t, "sum-2", sum)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorIs(t, <-errs, inference.ErrStale) // was running
		require.ErrorIs(t, <-errs, inference.ErrStale) // waited for version 1
		require.NoError(t, <-errs)                     // waited for any version
		require.Equal(t, 15*time.Second, time.Since(start))
		version, sum := i.Held()
		require.EqualValues(t, 2, version)
		require.Equal(t, "sum-2", sum)
		_, err = i.Generate(t.Context(), request(1, 1, 1))
		require.ErrorIs(t, err, inference.ErrStale)
		_, err = i.Publish(t.Context(), weights(0))
		require.ErrorContains(t, err, "expected 1 or more")
	})
}

// An instance that starts with weights holds them as version 0.
func TestStartsWithWeights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := Parse("lengths=fixed:3")
		require.NoError(t, err)
		c.Checksum = "own"
		i, err := New(c, NewClock())
		require.NoError(t, err)
		version, sum := i.Held()
		require.Zero(t, version)
		require.Equal(t, "own", sum)
		req := request(1, 1, 1)
		_, err = i.Generate(t.Context(), req)
		require.ErrorIs(t, err, inference.ErrStale)
		req.Version = 0
		out, err := i.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Zero(t, out[0].Version)
	})
}

// A response that waited during a publish reports the new version.
func TestWaitingRequestGetsNewVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a", "lengths=fixed:100,slots=1")
		first := request(1, 1, 1)
		go i.Generate(t.Context(), first) //nolint:errcheck // ends stale
		synctest.Wait()
		waits := request(2, 1, 1)
		waits.Version = 0
		got := make(chan int64, 1)
		go func() {
			out, err := i.Generate(t.Context(), waits)
			require.NoError(t, err)
			got <- out[0].Version
		}()
		synctest.Wait()
		_, err := i.Publish(t.Context(), weights(2))
		require.NoError(t, err)
		require.EqualValues(t, 2, <-got)
	})
}

func TestCancelFreesSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a", "lengths=fixed:100,tokens_per_second=10,prefill_tokens_per_second=1,slots=2")
		start := time.Now()
		// during its prompt, and while responses grow
		for _, after := range []time.Duration{500 * time.Millisecond, 4 * time.Second} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, context.Canceled)
			go func() {
				_, err := i.Generate(ctx, request(1, 3, 1))
				require.ErrorIs(t, err, context.Canceled)
				cancel()
			}()
		}
		synctest.Wait()
		require.Equal(t, 6, i.Stats().Waiting)
		_, err := i.Generate(t.Context(), request(2, 2, 1))
		require.NoError(t, err)
		require.Equal(t, 15*time.Second, time.Since(start)) // its prompt from 4 s, its responses from 5 s
		require.Zero(t, i.Stats().Waiting+i.Stats().Running)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a", "context=100")
		for name, change := range map[string]func(*inference.Request){
			"no tokens":        func(r *inference.Request) { r.PromptIDs = nil },
			"context of 100":   func(r *inference.Request) { r.PromptIDs = make([]int32, 100) },
			"stop strings":     func(r *inference.Request) { r.Sampling.Stop = []string{"x"} },
			"of the prompt":    func(r *inference.Request) { r.PromptLogprobs = true },
			"of other tokens":  func(r *inference.Request) { r.TopLogprobs = 1 },
			"expected 1 to 65": func(r *inference.Request) { r.N = 0 },
		} {
			req := request(1, 1, 1)
			change(&req)
			_, err := i.Generate(t.Context(), req)
			require.ErrorIs(t, err, inference.ErrInvalid, name)
			require.ErrorContains(t, err, name)
			_, err = i.Stream(t.Context(), req, nil)
			require.ErrorIs(t, err, inference.ErrInvalid, name)
		}
		errs := make(chan error, 1)
		go func() {
			_, err := i.Generate(t.Context(), request(1, 1, 1))
			errs <- err
		}()
		synctest.Wait()
		require.NoError(t, i.Close())
		require.NoError(t, i.Close())
		require.ErrorIs(t, <-errs, inference.ErrClosed)
		_, err := i.Generate(t.Context(), request(1, 1, 1))
		require.ErrorIs(t, err, inference.ErrClosed)
		_, err = i.Publish(t.Context(), weights(2))
		require.ErrorIs(t, err, inference.ErrClosed)

		fresh, err := New(Default(), NewClock())
		require.NoError(t, err)
		_, err = fresh.Generate(t.Context(), request(1, 1, 1))
		require.ErrorIs(t, err, inference.ErrStale)
	})
}

// A fifth of 2,000 requests fails, at the end of the first response; the bounds
// are five standard errors.
func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := instance(t, NewClock(), "a", "lengths=uniform:1,50,failures=0.2,slots=8")
		failed := 0
		for k := range uint64(2000) {
			if out, err := i.Generate(t.Context(), request(k, 1+int(k%3), 1)); err != nil {
				require.ErrorContains(t, err, "instance a: simulated failure")
				require.Nil(t, out)
				failed++
			}
		}
		require.InDelta(t, 400, failed, 5*18)
		require.Zero(t, i.Stats().Waiting+i.Stats().Running)
	})
}

// Alarms fire in order, overdue ones at once, stopped ones never.
func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		var mu sync.Mutex
		var fired []int
		alarms := make([]alarm, 100)
		for k := range alarms {
			alarms[k] = alarm{index: unset, fire: func() {
				mu.Lock()
				defer mu.Unlock()
				fired = append(fired, k)
				require.Equal(t, time.Duration(k)*time.Second, c.now())
			}}
		}
		for _, k := range []int{50, 7, 99, 1, 60, 30} {
			c.set(&alarms[k], 1000*time.Hour)
			c.set(&alarms[k], time.Duration(k)*time.Second)
		}
		c.stop(&alarms[30])
		c.stop(&alarms[30])
		time.AfterFunc(10*time.Second, func() {
			c.set(&alarms[10], 3*time.Second)
			c.stop(&alarms[99])
			c.set(&alarms[70], 70*time.Second)
		})
		<-time.After(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []int{1, 7, 10, 50, 60, 70}, fired)
		require.Zero(t, c.alarms.Len())
	})
}
