package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/inference/fleet"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// Quotations are from section 4.3 of Lu 2025 (periodic asynchrony).

// instance samples `slots` responses at once. After it gets its slots, a request takes as
// many seconds as its prompt's first token says.
type instance struct {
	id      string
	slots   int
	free    chan struct{}
	mu      sync.Mutex
	version int64
	served  int
	dies    bool // after serving one request
	hangs   bool
}

func newInstance(id string, slots int) *instance {
	return &instance{id: id, slots: slots, free: make(chan struct{}, slots)}
}

func (i *instance) ID() string    { return i.id }
func (i *instance) Capacity() int { return i.slots }
func (i *instance) Close() error  { return nil }

func (i *instance) Publish(_ context.Context, w inference.Weights) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.version = w.Version()
	return w.Checksum(), nil
}

func (i *instance) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
	if i.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for range req.N {
		i.free <- struct{}{}
		defer func() { <-i.free }()
	}
	if err := sleep(ctx, time.Duration(req.PromptIDs[0])*time.Second); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dies && i.served > 0 {
		return nil, errors.New("connection reset by peer")
	}
	i.served++
	out := answer(req)
	for j := range out {
		out[j].Version = i.version
		out[j].IDs[0] = int32(req.Seed >> 40) // the answer depends on the seed only
	}
	return out, nil
}

type weights int64

func (w weights) Version() int64                   { return int64(w) }
func (w weights) Checksum() string                 { return fmt.Sprint(int64(w)) }
func (w weights) WriteSafetensors(io.Writer) error { return nil }

func newFleet(t *testing.T, instances ...*instance) *fleet.Fleet {
	t.Helper()
	cfg := fleet.DefaultConfig()
	cfg.Ahead = 0
	f, err := fleet.New(cfg)
	require.NoError(t, err)
	for _, i := range instances {
		require.NoError(t, f.Add(t.Context(), i))
	}
	require.NoError(t, f.Publish(t.Context(), weights(7)))
	return f
}

func repeat(seconds int32, n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = seconds
	}
	return s
}

// "Inside this thread, a coroutine is used to concurrently and evenly dispatch
// the entire batch of prompts to multiple inference instances within the
// inference service."
func TestPaperEvenDispatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newInstance("a", 4), newInstance("b", 4), newInstance("c", 4)
		f := newFleet(t, a, b, c)
		_, _, sum, err := produce(t.Context(), t, newProducer(t, f, length, nil), batch(repeat(5, 24)...))
		require.NoError(t, err)
		require.Equal(t, map[string]int{"a": 8, "b": 8, "c": 8}, sum.byInstance)
		require.Equal(t, 20*time.Second, sum.sampled, "24 groups, 6 at once")
		require.NoError(t, f.Close())
	})
}

// "Each response returned by an inference instance is immediately scored, and
// once both inference and evaluation for a coroutine's assignment are finished,
// the resulting responses and reward scores are placed into a queue shared with
// the main process."
func TestPaperScoresImmediatelyInTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		scored := map[string]time.Duration{}
		scoring := time.Duration(0)
		p := newProducer(t, &fakeFleet{room: 99}, func(ctx context.Context, in reward.Input) (reward.Score, error) {
			mu.Lock()
			scored[in.Prompt.ID] = time.Since(start)
			scoring += 3 * time.Second
			mu.Unlock()
			return reward.Score{Value: 1}, sleep(ctx, 3*time.Second)
		}, nil)
		got, _, _, err := produce(t.Context(), t, p, batch(4, 1))
		require.NoError(t, err)
		require.Equal(t, map[string]time.Duration{"p0": 4 * time.Second, "p1": time.Second}, scored)
		require.Equal(t, []arrival{{1, 4}, {0, 7}}, got, "queued when inference and evaluation are both done")
		require.Equal(t, 12*time.Second, scoring, "each response once")
	})
}

// "Under this design, the start time of training is determined by the earliest
// completed sample among all prompts in the batch" (equation 15), whereas "in a
// synchronous system, the training process must wait for all prompts to be
// processed by the inference service" (equation 14).
func TestPaperTrainingStartsWithEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seconds := []int32{8, 6, 2, 9, 7, 5, 9, 3}
		var first [2]int
		for i, gate := range []bool{false, true} {
			f := newFleet(t, newInstance("a", 4)) // two groups at once
			got, _, _, err := produce(t.Context(), t, newProducer(t, f, length, func(c *Config) { c.Gate = gate }),
				batch(seconds...))
			require.NoError(t, err)
			require.Len(t, got, len(seconds))
			first[i] = got[0].second
			require.NoError(t, f.Close())
		}
		require.LessOrEqual(t, first[0], 8, "the earliest of the first batch")
		require.GreaterOrEqual(t, first[1], (8+6+2+9+7+5+9+3)/2, "all of them")
	})
}

// "Once all prompts in the batch have been processed, the inference service
// enters an idle state until the training step finishes and the updated policy
// weights are synchronized back to the rollout workers."
func TestPaperIdleUntilNextWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newInstance("a", 4)
		f := newFleet(t, a)
		p := newProducer(t, f, length, nil)
		_, _, _, err := produce(t.Context(), t, p, batch(1, 1, 1))
		require.NoError(t, err)
		s := f.Status()
		require.Zero(t, s.Queued+s.Instances[0].Requests)

		next := batch(1, 1)
		next.Number, next.Version = 4, 8
		_, _, _, err = produce(t.Context(), t, p, next)
		require.ErrorIs(t, err, inference.ErrStale, "not before its weights arrive")
		require.NoError(t, f.Publish(t.Context(), weights(8)))
		_, groups, _, err := produce(t.Context(), t, p, next)
		require.NoError(t, err)
		for _, g := range groups {
			require.EqualValues(t, 8, g.Version)
		}
		require.NoError(t, f.Close())
	})
}

// Algorithm 1, lines 6 to 13: B tasks enqueue, and the trainer consumes until
// consumed_count is B. Each prompt is delivered once, whatever happens to the instances.
func TestPaperEachPromptOnce(t *testing.T) {
	sorted := func(groups []rollout.Group) map[int]int32 {
		tokens := map[int]int32{}
		for _, g := range groups {
			if _, twice := tokens[g.Index]; twice {
				t.Errorf("group %d came twice", g.Index)
			}
			tokens[g.Index] = g.Responses[0].Spans[0].IDs[0]
		}
		return tokens
	}
	var want map[int]int32
	for _, name := range []string{"one instance", "one dies", "one hangs", "one joins", "one leaves",
		"one restarts with other weights"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newInstance("a", 4), newInstance("b", 4)
				f := newFleet(t, a)
				if name != "one instance" && name != "one joins" {
					require.NoError(t, f.Add(t.Context(), b))
				}
				b.dies, b.hangs = name == "one dies", name == "one hangs"
				var wg sync.WaitGroup
				wg.Go(func() {
					<-time.After(4 * time.Second) // of the bubble's clock
					switch name {
					case "one joins":
						require.NoError(t, f.Add(t.Context(), b))
					case "one leaves":
						require.NoError(t, f.Remove(t.Context(), b))
					case "one restarts with other weights":
						b.mu.Lock()
						b.version = 1
						b.mu.Unlock()
					}
				})
				_, groups, sum, err := produce(t.Context(), t, newProducer(t, f, length, nil), batch(repeat(3, 20)...))
				require.NoError(t, err)
				require.Len(t, groups, 20)
				require.Zero(t, sum.Failed)
				if want == nil {
					want = sorted(groups)
				}
				require.Equal(t, want, sorted(groups), "the same samples on any instance")
				if name == "one joins" {
					require.Positive(t, sum.byInstance["b"])
				}
				wg.Wait()
				require.NoError(t, f.Close())
			})
		})
	}
}
