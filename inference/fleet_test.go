package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeWeights are weights that are their version alone.
type fakeWeights int64

func (w fakeWeights) Version() int64                   { return int64(w) }
func (w fakeWeights) Checksum() string                 { return fmt.Sprintf("sum-%d", int64(w)) }
func (w fakeWeights) WriteSafetensors(io.Writer) error { return errors.New("no values") }

// fakeInstance answers each request after a second, unless told otherwise.
type fakeInstance struct {
	id       string
	capacity int
	generate func(ctx context.Context, req Request) ([]Completion, error)
	publish  func(ctx context.Context, w Weights) (string, error)

	mu        sync.Mutex
	version   int64
	calls     int
	running   int
	most      int // responses at once
	published []int64
	closed    bool
}

func (i *fakeInstance) ID() string    { return i.id }
func (i *fakeInstance) Capacity() int { return i.capacity }
func (i *fakeInstance) Close() error  { i.closed = true; return nil }

func (i *fakeInstance) Generate(ctx context.Context, req Request) ([]Completion, error) {
	i.mu.Lock()
	i.calls++
	i.running += req.N
	i.most = max(i.most, i.running)
	i.mu.Unlock()
	defer func() { i.mu.Lock(); i.running -= req.N; i.mu.Unlock() }()
	if i.generate != nil {
		return i.generate(ctx, req)
	}
	if err := sleep(ctx, time.Second); err != nil {
		return nil, err
	}
	return i.answer(req), nil
}

func (i *fakeInstance) answer(req Request) []Completion {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := make([]Completion, req.N)
	for j := range out {
		out[j] = Completion{IDs: []int32{int32(req.Seed)}, Logprobs: []float32{-1}, Version: i.version}
	}
	return out
}

func (i *fakeInstance) Publish(ctx context.Context, w Weights) (string, error) {
	if i.publish != nil {
		return i.publish(ctx, w)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = w.Version()
	i.published = append(i.published, i.version)
	return w.Checksum(), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func hang(ctx context.Context, _ Request) ([]Completion, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func fails(err error) func(context.Context, Request) ([]Completion, error) {
	return func(context.Context, Request) ([]Completion, error) { return nil, err }
}

func request(n int, version int64) Request {
	return Request{PromptIDs: []int32{1}, N: n, Version: version, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 8}}
}

// newFleet is a fleet of instances that hold version 1. Each test ends with its
// Close, after which synctest finds any goroutine that is left.
func newFleet(t *testing.T, change func(*FleetConfig), instances ...*fakeInstance) *Fleet {
	t.Helper()
	cfg := DefaultFleetConfig()
	if change != nil {
		change(&cfg)
	}
	f, err := NewFleet(cfg)
	require.NoError(t, err)
	for _, i := range instances {
		require.NoError(t, f.Add(t.Context(), i))
	}
	if len(instances) > 0 {
		require.NoError(t, f.Publish(t.Context(), fakeWeights(1)))
	}
	return f
}

func states(f *Fleet) map[string]State {
	m := map[string]State{}
	for _, i := range f.Status().Instances {
		m[i.ID] = i.State
	}
	return m
}

// outcomes runs n requests at once and counts the instances that answered.
func outcomes(t *testing.T, f *Fleet, n int, req Request) map[string]int {
	t.Helper()
	var mu sync.Mutex
	by := map[string]int{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := req
			r.Seed = uint64(i)
			out, id, err := f.Generate(t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				by["error"]++
				return
			}
			if len(out) != r.N || out[0].IDs[0] != int32(i) {
				by["wrong"]++
			}
			by[id]++
		})
	}
	wg.Wait()
	return by
}

func TestFleetSpreadsWorkWithinCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeInstance{id: "a", capacity: 8}, &fakeInstance{id: "b", capacity: 8}
		f := newFleet(t, func(c *FleetConfig) { c.Ahead = 0 }, a, b)
		start := time.Now()
		require.Equal(t, map[string]int{"a": 8, "b": 8}, outcomes(t, f, 16, request(4, 1)))
		require.Equal(t, 8, a.most)
		require.Equal(t, 8, b.most)
		require.Equal(t, 4*time.Second, time.Since(start), "four rounds of two requests on each")
		s := f.Status()
		require.Equal(t, 2, s.Size)
		require.Equal(t, 16, f.Capacity())
		require.EqualValues(t, 32, s.Instances[0].Tokens)
		require.Equal(t, 4*time.Second, s.Instances[0].Busy)
		require.NoError(t, f.Close())
		require.True(t, a.closed && b.closed)
	})
}

func TestFleetQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint64
		a := &fakeInstance{id: "a", capacity: 1}
		a.generate = func(ctx context.Context, req Request) ([]Completion, error) {
			got = append(got, req.Seed)
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, func(c *FleetConfig) { c.Ahead = 0 }, a)
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

// A request that waits for another instance than the one that failed it does
// not keep that one from the requests behind it.
func TestFleetServesPastARequestThatAvoidsAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeInstance{id: "b", capacity: 1, generate: hang}
		a := &fakeInstance{id: "a", capacity: 1}
		a.generate = func(ctx context.Context, req Request) ([]Completion, error) {
			if req.Seed == 8 {
				return nil, errors.New("503")
			}
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, func(c *FleetConfig) { c.Ahead = 0 }, b, a)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, seed := range []uint64{7, 8} { // on b and on a
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

func TestFleetTriesAnotherInstanceOnFault(t *testing.T) {
	boom := errors.New("connection reset")
	wrong := func(change func(*Completion)) func(context.Context, Request) ([]Completion, error) {
		return func(_ context.Context, req Request) ([]Completion, error) {
			out := make([]Completion, req.N)
			for j := range out {
				out[j] = Completion{IDs: []int32{1}, Logprobs: []float32{-1}, Version: req.Version}
			}
			change(&out[0])
			return out, nil
		}
	}
	for name, c := range map[string]struct {
		generate func(context.Context, Request) ([]Completion, error)
		state    State
	}{
		"dies mid-call": {func(ctx context.Context, _ Request) ([]Completion, error) {
			return nil, errors.Join(sleep(ctx, time.Second), boom)
		}, Dead},
		"hangs":                {hang, Dead},
		"too few responses":    {func(context.Context, Request) ([]Completion, error) { return nil, nil }, Dead},
		"no log-probabilities": {wrong(func(c *Completion) { c.Logprobs = nil }), Dead},
		"not a number":         {wrong(func(c *Completion) { c.Logprobs[0] = float32(math.NaN()) }), Dead},
		"empty response":       {wrong(func(c *Completion) { c.IDs, c.Logprobs = nil, nil }), Dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := &fakeInstance{id: "a", capacity: 4, generate: c.generate}, &fakeInstance{id: "b", capacity: 4}
				f := newFleet(t, nil, a, b)
				require.Equal(t, map[string]int{"b": 12}, outcomes(t, f, 12, request(1, 1)), "nothing is lost")
				require.Equal(t, c.state, states(f)["a"])
				require.Positive(t, f.Status().Retries)
				// A dead instance comes back with the next verified weights.
				a.generate = nil
				require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
				synctest.Wait()
				require.Equal(t, Healthy, states(f)["a"])
				require.NoError(t, f.Close())
			})
		})
	}
}

func TestFleetSuspectGetsOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 8}
		first := true
		a.generate = func(ctx context.Context, req Request) ([]Completion, error) {
			if first {
				first = false
				return nil, errors.New("503")
			}
			return a.answer(req), sleep(ctx, time.Second)
		}
		f := newFleet(t, nil, a)
		_, _, err := f.Generate(t.Context(), Request{})
		require.ErrorIs(t, err, ErrInvalid)
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

func TestFleetRefusesAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeInstance{id: "a", capacity: 4}, &fakeInstance{id: "b", capacity: 4}
		f := newFleet(t, nil, a, b)
		_, _, err := f.Generate(t.Context(), request(1, 2))
		require.ErrorIs(t, err, ErrStale)

		// a has restarted with the weights it started from and will not take others.
		a.version = 0
		a.publish = func(context.Context, Weights) (string, error) { return "", errors.New("out of memory") }
		require.Equal(t, map[string]int{"b": 8}, outcomes(t, f, 8, request(1, 1)))
		require.Equal(t, Stale, states(f)["a"])
		require.GreaterOrEqual(t, f.Status().Stale, int64(2))

		// The next publish tries a again without waiting for it.
		a.publish = nil
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		synctest.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

func TestFleetDoesNotPassOnThatAnInstanceIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 4, generate: fails(fmt.Errorf("holds 0: %w", ErrStale))}
		f := newFleet(t, func(c *FleetConfig) { c.Attempts = 3 }, a)
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorContains(t, err, "no answer in 3 tries: generate on a: holds 0: stale weights")
		require.NotErrorIs(t, err, ErrStale)
		require.NoError(t, f.Close())
	})
}

func TestFleetHealsAnInstanceThatRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 4}
		f := newFleet(t, nil, a)
		a.version = 0
		require.Equal(t, map[string]int{"a": 4}, outcomes(t, f, 4, request(1, 1)))
		require.Equal(t, []int64{1, 1}, a.published)
		require.Equal(t, Healthy, states(f)["a"])
		require.NoError(t, f.Close())
	})
}

func TestFleetPublishVerifiesChecksums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &fakeInstance{id: "a", capacity: 4}, &fakeInstance{id: "b", capacity: 4}, &fakeInstance{id: "c", capacity: 4}
		f := newFleet(t, func(c *FleetConfig) { c.MinServing = 2 }, a, b, c)
		a.publish = func(context.Context, Weights) (string, error) { return "sum-1", nil } // answers well, changed nothing
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)), "two of three hold the weights")
		require.Equal(t, map[string]State{"a": Stale, "b": Healthy, "c": Healthy}, states(f))
		require.Contains(t, f.Status().Instances[0].PublishFail, "publish version 2 to a: instance reports checksum sum-1, expected sum-2")

		b.publish = func(ctx context.Context, _ Weights) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		start := time.Now()
		err := f.Publish(t.Context(), fakeWeights(3))
		require.ErrorIs(t, err, ErrNoInstance)
		require.ErrorContains(t, err, "publish version 3: 1 instances hold it, expected at least 2")
		require.Equal(t, f.cfg.PublishTimeout, time.Since(start))

		// An instance that failed does not hold up the next publish.
		a.publish = nil
		start = time.Now()
		require.NoError(t, f.Publish(t.Context(), fakeWeights(4)))
		require.Zero(t, time.Since(start))
		require.NoError(t, f.Close())
	})
}

func TestFleetPublishEndsReadersOfOlderWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeInstance{id: "a", capacity: 4}, &fakeInstance{id: "b", capacity: 4}
		f := newFleet(t, nil, a)
		reading := map[int64]bool{}
		var mu sync.Mutex
		b.publish = func(ctx context.Context, w Weights) (string, error) {
			mu.Lock()
			reading[w.Version()] = true
			mu.Unlock()
			defer func() { mu.Lock(); delete(reading, w.Version()); mu.Unlock() }()
			if w.Version() == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			b.version = w.Version()
			return w.Checksum(), nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, f.Add(t.Context(), b), "the publish under way takes charge of it") })
		synctest.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Stale}, states(f))
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Empty(t, reading)
		wg.Wait()
		require.Equal(t, map[string]State{"a": Healthy, "b": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

func TestFleetPublishFailsQueuedRequestsOfOlderVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 1}
		a.generate = func(ctx context.Context, req Request) ([]Completion, error) {
			if err := sleep(ctx, time.Hour/4); err != nil {
				return nil, err
			}
			return a.answer(req), nil
		}
		f := newFleet(t, func(c *FleetConfig) { c.Ahead = 0 }, a)
		var wg sync.WaitGroup
		var errs [2]error
		for i := range errs {
			wg.Go(func() { _, _, errs[i] = f.Generate(t.Context(), request(1, 1)) })
			synctest.Wait()
		}
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		wg.Wait()
		require.ErrorIs(t, errs[0], ErrStale, "sampled under version 1, answered as version 2")
		require.ErrorIs(t, errs[1], ErrStale)
		require.Equal(t, Healthy, states(f)["a"], "what it did under older weights is not held against it")
		require.NoError(t, f.Close())
	})
}

func TestFleetLateJoinerGetsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeInstance{id: "a", capacity: 1}, &fakeInstance{id: "b", capacity: 4}
		f := newFleet(t, func(c *FleetConfig) { c.Ahead = 0 }, a)
		var by map[string]int
		var wg sync.WaitGroup
		wg.Go(func() { by = outcomes(t, f, 10, request(1, 1)) })
		synctest.Wait()
		require.ErrorContains(t, f.Add(t.Context(), &fakeInstance{id: "a"}), "one of that name")
		require.NoError(t, f.Add(t.Context(), b))
		wg.Wait()
		require.Equal(t, 8, by["b"])
		require.NoError(t, f.Close())
	})
}

func TestFleetDrainAndRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &fakeInstance{id: "a", capacity: 2}, &fakeInstance{id: "b", capacity: 2, generate: hang}, &fakeInstance{id: "c", capacity: 2}
		f := newFleet(t, nil, a, b, c)
		var by map[string]int
		var wg sync.WaitGroup
		wg.Go(func() { by = outcomes(t, f, 9, request(1, 1)) })
		synctest.Wait()
		require.NoError(t, f.Drain(t.Context(), "a"))
		calls := a.calls
		require.NoError(t, f.Remove(t.Context(), "b"), "its requests go elsewhere")
		require.True(t, b.closed)
		wg.Wait()
		require.Equal(t, 9, by["a"]+by["c"])
		require.Equal(t, calls, a.calls, "a draining instance gets no more work")
		require.Error(t, f.Drain(t.Context(), "b"))
		require.Error(t, f.Remove(t.Context(), "b"))
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Equal(t, map[string]State{"a": Draining, "c": Healthy}, states(f))
		require.NoError(t, f.Close())
	})
}

func TestFleetLosingAllInstancesEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeInstance{id: "a", capacity: 4, generate: fails(errors.New("EOF"))}, &fakeInstance{id: "b", capacity: 4, generate: fails(errors.New("EOF"))}
		f := newFleet(t, func(c *FleetConfig) { c.Attempts = 100 }, a, b)
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, ErrNoInstance)
		require.Equal(t, map[string]State{"a": Dead, "b": Dead}, states(f))
		require.Zero(t, f.Capacity())
		require.NoError(t, f.Close())
	})
}

func TestFleetBoundsTriesAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 4, generate: fails(errors.New("502"))}
		f := newFleet(t, func(c *FleetConfig) {
			c.Attempts, c.DeadAfter, c.Backoff, c.BackoffMax = 4, 100, time.Second, 3*time.Second
		}, a)
		start := time.Now()
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorContains(t, err, "no answer in 4 tries: generate on a: 502")
		require.Equal(t, 6*time.Second, time.Since(start), "1 + 2 + 3 seconds of pauses")
		require.Equal(t, 4, a.calls)

		a.generate = fails(fmt.Errorf("prompt of 9 tokens: %w", ErrInvalid))
		_, _, err = f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, 5, a.calls, "a fault of the data is not tried again")
		require.NoError(t, f.Close())
	})
}

func TestFleetCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeInstance{id: "a", capacity: 1, generate: hang}
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
		require.Equal(t, Healthy, s.Instances[0].State, "a caller that leaves is no fault of the instance")

		wg.Go(func() {
			_, _, err := f.Generate(t.Context(), request(1, 1))
			require.ErrorIs(t, err, ErrClosed)
		})
		synctest.Wait()
		require.NoError(t, f.Close())
		wg.Wait()
		_, _, err := f.Generate(t.Context(), request(1, 1))
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, f.Add(t.Context(), a), ErrClosed)
		require.ErrorIs(t, f.Publish(t.Context(), fakeWeights(2)), ErrClosed)
		require.NoError(t, f.Close())
	})
}

func TestFleetNotifiesOfStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		a := &fakeInstance{id: "a", capacity: 1}
		f := newFleet(t, func(c *FleetConfig) {
			c.Attempts = 1
			c.Notify = func(e Event) { events = append(events, fmt.Sprintf("%s %v>%v", e.ID, e.From, e.To)) }
		}, a)
		a.generate = fails(io.ErrUnexpectedEOF)
		for range 3 {
			_, _, err := f.Generate(t.Context(), request(1, 1))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		require.Equal(t, []string{"a STALE>HEALTHY", "a HEALTHY>SUSPECT", "a SUSPECT>DEAD", "a DEAD>HEALTHY"}, events)
		require.NoError(t, f.Close())
	})
}

func TestFleetConfigReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := NewFleet(FleetConfig{Ahead: -1})
	for _, want := range []string{"min serving", "attempts", "dead after", "call timeout", "publish timeout", "empty wait", "backoff", "ahead"} {
		require.ErrorContains(t, err, want)
	}
}

func TestRequestValidate(t *testing.T) {
	t.Parallel()
	good := request(1, 0)
	require.NoError(t, good.Validate())
	bad := Request{N: -1, Version: -1, Sampling: Sampling{
		Temperature: float32(math.NaN()), TopP: 1.5, TopK: -1, MinP: 2, Stop: []string{""},
	}}
	err := bad.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, want := range []string{"no tokens", "-1 responses", "version -1", "max tokens 0", "temperature NaN", "top-p 1.5", "top-k -1", "min-p 2", "stop string 0"} {
		require.ErrorContains(t, err, want)
	}
}
