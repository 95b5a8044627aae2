package fleet

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// worker is an instance that samples token by token, may stall, and shows its work. The
// seed determines a response's length, which varies widely.
type worker struct {
	id    string
	token time.Duration // to sample one

	mu       sync.Mutex
	version  int64
	tokens   int64
	frozen   chan struct{} // answers nothing until it is closed, as after SIGSTOP; nil if it runs
	swallows bool          // samples and never answers
}

func newWorker(id string, token time.Duration) *worker { return &worker{id: id, token: token} }

func (w *worker) ID() string    { return w.id }
func (w *worker) Capacity() int { return 16 }
func (w *worker) Close() error  { return nil }

// freeze stops w.
func (w *worker) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = make(chan struct{})
}

// thaw lets w continue.
func (w *worker) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.frozen)
	w.frozen = nil
}

// runs waits for d and while w is frozen.
func (w *worker) runs(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}
	w.mu.Lock()
	frozen := w.frozen
	w.mu.Unlock()
	if frozen == nil {
		return nil
	}
	select {
	case <-frozen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *worker) Probe(ctx context.Context) error { return w.runs(ctx, time.Millisecond) }

func (w *worker) Pulse(ctx context.Context) (string, error) {
	err := w.runs(ctx, time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	return strconv.FormatInt(w.tokens, 10), err
}

func (w *worker) Publish(ctx context.Context, weights inference.Weights) (string, error) {
	err := w.runs(ctx, 200*time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = weights.Version()
	return weights.Checksum(), err
}

func (w *worker) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	w.mu.Lock()
	rng := rand.New(rand.NewPCG(req.Seed, 1))
	out, longest := make([]inference.Completion, req.N), 0
	for j := range out {
		n := min(2+int(math.Exp(5*rng.Float64())), req.Sampling.MaxTokens)
		out[j] = inference.Completion{IDs: make([]int32, n), Logprobs: make([]float32, n), Version: w.version}
		longest = max(longest, n)
	}
	w.mu.Unlock()
	for range longest {
		if err := w.runs(ctx, w.token); err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.tokens++
		w.mu.Unlock()
	}
	w.mu.Lock()
	swallows := w.swallows
	w.mu.Unlock()
	if swallows {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, nil
}

const stallSteps, stallRequests = 10, 24

// steps publishes and samples with f step by step. It returns the duration of each step and
// the sorted lengths of the responses in each. during runs beside each step.
func steps(t *testing.T, f *Fleet, during func(step int)) (times []time.Duration, lengths [][]int) {
	t.Helper()
	for step := 1; step <= stallSteps; step++ {
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { during(step) })
		synctest.Wait()
		require.NoError(t, f.Publish(t.Context(), fakeWeights(step)))
		var mu sync.Mutex
		var all []int
		var asked sync.WaitGroup
		for i := range stallRequests {
			asked.Go(func() {
				req := request(4, int64(step))
				req.Seed, req.Sampling.MaxTokens = uint64(step*1000+i), 160
				out, _, err := f.Generate(t.Context(), req)
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				for _, c := range out {
					all = append(all, len(c.IDs))
				}
			})
		}
		asked.Wait()
		times = append(times, time.Since(start))
		wg.Wait()
		slices.Sort(all)
		lengths = append(lengths, all)
	}
	return times, lengths
}

// fleetOf returns a fleet of workers without weights.
func fleetOf(t *testing.T, workers ...*worker) *Fleet {
	t.Helper()
	f := newFleet(t, nil)
	for _, w := range workers {
		require.NoError(t, f.Add(t.Context(), w))
	}
	return f
}

// Wherever an instance stalls, no step from the third on takes longer than three times as
// long as with the other instances alone, and the responses are the same.
func TestStalledInstanceIsBypassed(t *testing.T) {
	const token = 50 * time.Millisecond
	var alone []time.Duration
	var want [][]int
	synctest.Test(t, func(t *testing.T) {
		f := fleetOf(t, newWorker("a", token), newWorker("b", token))
		alone, want = steps(t, f, func(int) {})
		require.NoError(t, f.Close())
	})
	for name, stall := range map[string]func(w *worker, step int){
		"frozen from the start": func(w *worker, step int) {
			if step == 1 {
				<-time.After(time.Second)
				w.freeze()
			}
		},
		"frozen within a step": func(w *worker, step int) {
			if step == 4 {
				<-time.After(4 * time.Second)
				w.freeze()
			}
		},
		"frozen at the end of a step": func(w *worker, step int) {
			if step == 4 {
				<-time.After(8 * time.Second)
				w.freeze()
			}
		},
		"frozen during a publish": func(w *worker, step int) {
			if step == 4 {
				w.freeze()
			}
		},
		"frozen and back": func(w *worker, step int) {
			switch {
			case step == 4:
				<-time.After(2 * time.Second)
				w.freeze()
			case step == 6:
				<-time.After(2 * time.Second)
				w.thaw()
			}
		},
		"frozen for a moment": func(w *worker, step int) {
			if step%2 == 0 {
				<-time.After(time.Second)
				w.freeze()
				<-time.After(3 * time.Second)
				w.thaw()
			}
		},
		"swallows from the start": func(w *worker, step int) { w.mu.Lock(); w.swallows = true; w.mu.Unlock() },
		"swallows later":          func(w *worker, step int) { w.mu.Lock(); w.swallows = step >= 4; w.mu.Unlock() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newWorker("c", token)
				f := fleetOf(t, newWorker("a", token), newWorker("b", token), c)
				times, got := steps(t, f, func(step int) { stall(c, step) })
				require.Equal(t, want, got)
				t.Logf("alone %v, with a stalled instance %v", alone, times)
				for i := 2; i < stallSteps; i++ {
					require.LessOrEqual(t, times[i], 3*alone[i], "step %d", i+1)
				}
				require.NoError(t, f.Close())
			})
		})
	}
}

// A fleet that needs all of its instances continues soon after one has lost its requests and
// recovered, whatever the instance answered meanwhile. An instance that was only frozen keeps its
// requests.
func TestNeededInstanceRecovers(t *testing.T) {
	const token = 50 * time.Millisecond
	const away = 45 * time.Second
	lose := func(w *worker, loses bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.swallows = loses
	}
	for name, row := range map[string]struct {
		workers  int // all of them needed
		fault    func(w *worker)
		recovers func(w *worker)
		restarts int
	}{
		"loses requests": {1, func(w *worker) { lose(w, true) }, func(w *worker) { lose(w, false) }, 1},
		"restarts behind a proxy that keeps connections": {1,
			func(w *worker) { lose(w, true); w.freeze() },
			func(w *worker) { w.thaw(); <-time.After(10 * time.Second); lose(w, false) }, 1},
		"freezes":                {1, func(w *worker) { w.freeze() }, func(w *worker) { w.thaw() }, 0},
		"loses requests, of two": {2, func(w *worker) { lose(w, true) }, func(w *worker) { lose(w, false) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T, during func(w *worker, step int)) (
				times []time.Duration, lengths [][]int, restarts int) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, func(c *Config) { c.MinServing = row.workers })
					var workers []*worker
					for i := range row.workers {
						workers = append(workers, newWorker(string(rune('a'+i)), token))
						require.NoError(t, f.Add(t.Context(), workers[i]))
					}
					times, lengths = steps(t, f, func(step int) { during(workers[0], step) })
					restarts = f.Status().Instances[0].Restarts
					require.NoError(t, f.Close())
				})
				return times, lengths, restarts
			}
			alone, want, _ := run(t, func(*worker, int) {})
			times, got, restarts := run(t, func(w *worker, step int) {
				if step == 4 {
					<-time.After(2 * time.Second)
					row.fault(w)
					<-time.After(away)
					row.recovers(w)
				}
			})
			require.Equal(t, want, got)
			require.Equal(t, row.restarts > 0, restarts > 0)
			t.Logf("alone %v, with a fault %v, %d restarts", alone, times, restarts)
			require.Less(t, times[3], away+5*alone[3]+DefaultConfig().ProbeEvery)
			for i := 4; i < stallSteps; i++ {
				require.LessOrEqual(t, times[i], 2*alone[i], "step %d", i+1)
			}
		})
	}
}

// A stalled or slow instance does not change how long the responses are: other instances
// sample the same responses again, and an instance that works keeps its long ones.
func TestStalledInstanceKeepsLengths(t *testing.T) {
	const token = 50 * time.Millisecond
	stalls := func(w *worker, step int) {
		if step%2 == 0 {
			<-time.After(time.Duration(step) * 400 * time.Millisecond) // the long responses are left
			w.freeze()
			<-time.After(time.Minute)
			w.thaw()
		}
	}
	runs := func(*worker, int) {}
	var want [][]int
	for _, c := range []struct {
		name   string
		token  time.Duration // of the third instance
		stall  func(w *worker, step int)
		silent int // times that it is bypassed
	}{
		{"as fast", token, runs, 0},
		{"slow", 10 * token, runs, 0},
		{"stalls", token, stalls, 3},
		{"slow and stalls", 4 * token, stalls, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			last := newWorker("c", c.token)
			f := fleetOf(t, newWorker("a", token), newWorker("b", token), last)
			_, lengths := steps(t, f, func(step int) { c.stall(last, step) })
			if want == nil {
				want = lengths
			}
			require.Equal(t, want, lengths, c.name)
			restarts := f.Status().Instances[2].Restarts
			require.GreaterOrEqual(t, restarts, c.silent, c.name)
			if c.silent == 0 {
				require.Zero(t, restarts, "%s: it works", c.name)
			}
			require.NoError(t, f.Close())
		})
	}
}
