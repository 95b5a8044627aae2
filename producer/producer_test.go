package producer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// fakeFleet answers each request after as many seconds as its prompt's first token says.
type fakeFleet struct {
	room     int // in groups
	generate func(ctx context.Context, req inference.Request) ([]inference.Completion, error)

	mu      sync.Mutex
	calls   []inference.Request
	running int
	most    int
	spent   time.Duration // in all calls
}

func (f *fakeFleet) TargetInFlight(int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room
}

// now returns the number of running requests.
func (f *fakeFleet) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

func (f *fakeFleet) Generate(ctx context.Context, req inference.Request) ([]inference.Completion, string, error) {
	f.mu.Lock()
	f.calls = append(f.calls, req)
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	start := time.Now()
	defer func() { f.mu.Lock(); f.running--; f.spent += time.Since(start); f.mu.Unlock() }()
	if f.generate != nil {
		out, err := f.generate(ctx, req)
		return out, "fake", err
	}
	if err := sleep(ctx, time.Duration(req.PromptIDs[0])*time.Second); err != nil {
		return nil, "", err
	}
	return answer(req), "fake", nil
}

func answer(req inference.Request) []inference.Completion {
	out := make([]inference.Completion, req.N)
	for i := range out {
		out[i] = inference.Completion{
			IDs: []int32{int32(i), 9}, Logprobs: []float32{-1, -2}, Text: "untouched", Finish: rollout.Stop,
			Version: req.Version,
		}
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// scorer adapts a function to reward.Func.
type scorer func(ctx context.Context, in reward.Input) (reward.Score, error)

func (s scorer) Score(ctx context.Context, in reward.Input) (reward.Score, error) { return s(ctx, in) }

func length(_ context.Context, in reward.Input) (reward.Score, error) {
	return reward.Score{Value: float64(in.Length), Parts: map[string]float64{"length": float64(in.Length)}}, nil
}

func text(ids []int32) string { return fmt.Sprint(ids[:len(ids)-1]) }

// batch returns a batch with a prompt for each duration in seconds.
func batch(seconds ...int32) rollout.Batch {
	b := rollout.Batch{Number: 3, Version: 7}
	for i, s := range seconds {
		b.Prompts = append(b.Prompts, rollout.Prompt{ID: fmt.Sprintf("p%d", i), IDs: []int32{s}})
	}
	return b
}

// testConfig returns a configuration that samples groups of 2.
func testConfig() Config {
	cfg := DefaultConfig()
	cfg.GroupSize, cfg.Seed, cfg.Sampling = 2, 42, inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}
	return cfg
}

// arrival is a group and its time of arrival in seconds.
type arrival struct {
	index  int
	second int
}

// account describes a finished step.
type account struct {
	rollout.Stats
	failed     []failure
	sampled    time.Duration // from the start to the last group's score
	byInstance map[string]int
	replaced   []rollout.Group
}

// produce runs a step to its end with a consumer that is always ready. In a synctest
// bubble, a goroutine that outlives the step fails the test.
func produce(ctx context.Context, t *testing.T, p *Producer, b rollout.Batch) (
	got []arrival, groups []rollout.Group, sum account, err error) {
	t.Helper()
	start := time.Now()
	s := p.Start(ctx, b).(*step)
	sum.byInstance = map[string]int{}
	for g := range s.Groups() {
		groups = append(groups, g)
		got = append(got, arrival{g.Index, int(time.Since(start) / time.Second)})
		sum.sampled = max(sum.sampled, g.Scored.Sub(start))
		sum.byInstance[g.Responses[0].Instance]++
		sum.replaced = append(sum.replaced, g.Before...)
	}
	sum.Stats, err = s.Wait()
	sum.failed = s.failed
	require.Len(t, sum.failed, sum.Failed)
	return got, groups, sum, err
}

func newProducer(t *testing.T, f Fleet, fn scorer, change func(*Config)) *Producer {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg, Deps{Fleet: f, Reward: fn, Text: text, Signal: differ})
	require.NoError(t, err)
	return p
}

// differ is the signal of a group by its own rewards.
func differ(rewards []float64) bool { return slices.Min(rewards) < slices.Max(rewards) }

func TestGate(t *testing.T) {
	for gate, want := range map[bool][]arrival{
		false: {{1, 1}, {3, 2}, {0, 5}, {2, 9}},
		true:  {{0, 9}, {1, 9}, {2, 9}, {3, 9}},
	} {
		t.Run(fmt.Sprint("gate ", gate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFleet{room: 100}
				p := newProducer(t, f, length, func(c *Config) { c.Gate = gate })
				got, _, sum, err := produce(t.Context(), t, p, batch(5, 1, 9, 2))
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Equal(t, 9*time.Second, sum.sampled)
				require.Equal(t, 17*time.Second, f.spent)
			})
		})
	}
}

func TestGroupIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8}
		p := newProducer(t, f, length, nil)
		in := batch(1, 2)
		_, groups, sum, err := produce(t.Context(), t, p, in)
		require.NoError(t, err)
		require.Equal(t, rollout.Group{
			Batch: 3, Index: 1, Prompts: len(in.Prompts), Version: 7, Prompt: in.Prompts[1], Seed: seedOf(42, 3, 1),
			Scored: time.Now(),
			Responses: []rollout.Response{
				{Text: "[0]", Spans: rollout.Sampled([]int32{0, 9}, []float32{-1, -2}, 7), Reward: 2,
					Parts: map[string]float64{"length": 2}, Finish: rollout.Stop, Instance: "fake"},
				{Text: "[1]", Spans: rollout.Sampled([]int32{1, 9}, []float32{-1, -2}, 7), Reward: 2,
					Parts: map[string]float64{"length": 2}, Finish: rollout.Stop, Instance: "fake"},
			},
		}, groups[1])
		require.Equal(t, map[string]int{"fake": 2}, sum.byInstance)
		prompt, response := 0, 0 // tokens
		for i := range groups {
			prompt += len(groups[i].Prompt.IDs)
			for _, r := range groups[i].Responses {
				response += len(r.Spans[0].IDs)
			}
		}
		require.Equal(t, []int{2, 8}, []int{prompt, response})
		for _, call := range f.calls {
			require.Equal(t, seedOf(42, 3, int(call.PromptIDs[0])-1), call.Seed)
			require.Equal(t, 2, call.N)
			require.EqualValues(t, 7, call.Version)
			require.Equal(t, testConfig().Sampling, call.Sampling)
		}
		// Without a decoder the instances' text is used.
		p.sampler.Text = nil
		_, groups, _, err = produce(t.Context(), t, p, in)
		require.NoError(t, err)
		require.Equal(t, "untouched", groups[0].Responses[0].Text)
	})
}

func TestSeedIsSplitMix64Chain(t *testing.T) {
	t.Parallel()
	for want, c := range map[uint64]struct {
		run         uint64
		step, index int
	}{
		0x44e5b98100c67fb0: {0, 1, 0}, 0x5d396f908f79bb0b: {42, 3, 1},
		0x3d7cb0d0de77a815: {7, 1000, 511}, 0xbd6726cf886f2317: {math.MaxUint64, 1, 5},
	} {
		require.Equal(t, want, seedOf(c.run, c.step, c.index), "a run that resumes samples what it would have sampled")
	}
	seen := map[uint64]bool{}
	for run := range uint64(4) {
		for step := range 16 {
			for index := range 64 {
				seen[seedOf(run, step, index)] = true
			}
		}
	}
	require.Len(t, seen, 4*16*64)
}

func TestTasksAreBoundedByTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ room, inFlight, want int }{{4, 0, 4}, {3, 0, 3}, {0, 0, 1}, {100, 5, 5}} {
			f := &fakeFleet{room: c.room}
			p := newProducer(t, f, length, func(cfg *Config) { cfg.InFlight = c.inFlight })
			_, _, _, err := produce(t.Context(), t, p, batch(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
			require.NoError(t, err)
			require.Equal(t, c.want, f.most)
		}
	})
}

func TestTasksFollowGrowingFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{}
		f.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			return answer(req), sleep(ctx, time.Minute)
		}
		p := newProducer(t, f, length, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, _, _, err := produce(t.Context(), t, p, batch(make([]int32, 9)...))
			require.NoError(t, err)
			require.Len(t, got, 9)
		})
		synctest.Wait()
		require.Equal(t, 1, f.now())
		f.mu.Lock()
		f.room = 8
		f.mu.Unlock()
		<-time.After(2 * recheck) // of the bubble's clock
		synctest.Wait()
		require.Equal(t, 8, f.now(), "without waiting for the first to end")
		wg.Wait()
	})
}

// The producer follows the fleet's target as soon as an answer changes it.
func TestTasksFollowFleetTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 2}
		f.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			if err := sleep(ctx, time.Duration(req.PromptIDs[0])*time.Second+recheck/2); err != nil {
				return nil, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.room = 5
			return answer(req), nil
		}
		start := time.Now()
		got, _, _, err := produce(t.Context(), t, newProducer(t, f, length, nil), batch(1, 9, 9, 9, 9, 9))
		require.NoError(t, err)
		require.Len(t, got, 6)
		require.Equal(t, 11*time.Second, time.Since(start), "four more as the first ends")
	})
}

func TestSamplingNeverWaitsForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 1}
		p := newProducer(t, f, length, nil)
		start := time.Now()
		s := p.Start(t.Context(), batch(1, 1, 1, 1))
		_, err := s.Wait()
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Len(t, f.calls, 4)
		require.Zero(t, f.now())
		n := 0
		for range s.Groups() {
			n++
		}
		require.Equal(t, 4, n)
	})
}

func TestBatchAndConfigReportAllFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{InFlight: -1, DynamicSampling: -1, MaxFailed: -1, MaxLost: -1}, Deps{})
	for _, want := range []string{"group size is 0", "in flight is -1", "scoring is 0", "dynamic sampling is -1",
		"max failed is -1", "max lost is -1"} {
		require.ErrorContains(t, err, want)
	}
	s := newProducer(t, &fakeFleet{}, length, nil).Start(t.Context(), rollout.Batch{Number: 2})
	_, err = s.Wait()
	for _, want := range []string{"produce step 2", "version is 0", "no prompts"} {
		require.ErrorContains(t, err, want)
	}
	_, open := <-s.Groups()
	require.False(t, open)
}
