package producer

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
	"github.com/easyrl/easyrl/reward"
	"github.com/easyrl/easyrl/rollout"
)

// fakeFleet answers each request after its prompt's first token in seconds.
type fakeFleet struct {
	room     int // in groups
	generate func(ctx context.Context, req inference.Request) ([]inference.Completion, error)

	mu      sync.Mutex
	calls   []inference.Request
	running int
	most    int
}

func (f *fakeFleet) Room(int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room
}

// now is the number of requests that run.
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
	defer func() { f.mu.Lock(); f.running--; f.mu.Unlock() }()
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
			IDs: []int32{int32(i), 9}, Logprobs: []float32{-1, -2}, Text: "untouched", Finish: rollout.Stop, Version: req.Version,
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

// scorer is a reward.Func made of a function.
type scorer func(ctx context.Context, in reward.Input) (reward.Score, error)

func (s scorer) Score(ctx context.Context, in reward.Input) (reward.Score, error) { return s(ctx, in) }

func length(_ context.Context, in reward.Input) (reward.Score, error) {
	return reward.Score{Value: float64(in.Length), Parts: map[string]float64{"length": float64(in.Length)}}, nil
}

func text(ids []int32) string { return fmt.Sprint(ids[:len(ids)-1]) }

// period is one prompt for each duration in seconds.
func period(seconds ...int32) Period {
	p := Period{Step: 3, Version: 7, GroupSize: 2, Seed: 42, Sampling: inference.Sampling{Temperature: 1, TopP: 1, MaxTokens: 4}}
	for i, s := range seconds {
		p.Prompts = append(p.Prompts, rollout.Prompt{ID: fmt.Sprintf("p%d", i), IDs: []int32{s}})
	}
	return p
}

// delivery is a group and when it came, in seconds.
type delivery struct {
	index  int
	second int
}

// produce runs a period to its end with a consumer that is always ready. In
// synctest's bubble a goroutine that Run leaves behind fails the test.
func produce(ctx context.Context, t *testing.T, p *Producer, period Period) (got []delivery, groups []rollout.Group, sum Summary, err error) {
	t.Helper()
	start := time.Now()
	out := make(chan rollout.Group)
	var wg sync.WaitGroup
	wg.Go(func() { sum, err = p.Run(ctx, period, out) })
	for g := range out {
		groups = append(groups, g)
		got = append(got, delivery{g.Index, int(time.Since(start) / time.Second)})
	}
	wg.Wait()
	return got, groups, sum, err
}

func newProducer(t *testing.T, f Fleet, fn scorer, change func(*Config)) *Producer {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg, f, fn, text)
	require.NoError(t, err)
	return p
}

func TestOrdersAndGate(t *testing.T) {
	for name, c := range map[string]struct {
		order string
		gate  bool
		want  []delivery
	}{
		"arrival":      {Arrival, false, []delivery{{1, 1}, {3, 2}, {0, 5}, {2, 9}}},
		"prompt":       {Prompt, false, []delivery{{0, 5}, {1, 5}, {2, 9}, {3, 9}}},
		"arrival gate": {Arrival, true, []delivery{{1, 9}, {3, 9}, {0, 9}, {2, 9}}},
		"prompt gate":  {Prompt, true, []delivery{{0, 9}, {1, 9}, {2, 9}, {3, 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProducer(t, &fakeFleet{room: 100}, length, func(c2 *Config) { c2.Order, c2.Gate = c.order, c.gate })
				got, _, sum, err := produce(t.Context(), t, p, period(5, 1, 9, 2))
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				require.Equal(t, 4, sum.Groups)
				require.Equal(t, time.Duration(c.want[0].second)*time.Second, sum.FirstGroup)
				require.Equal(t, 9*time.Second, sum.Sampled)
				require.Equal(t, 17*time.Second, sum.Generating)
			})
		})
	}
}

func TestGroupCarriesAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8}
		p := newProducer(t, f, length, nil)
		in := period(1, 2)
		_, groups, sum, err := produce(t.Context(), t, p, in)
		require.NoError(t, err)
		require.Equal(t, rollout.Group{
			Step: 3, Index: 1, Version: 7, Prompt: in.Prompts[1], Seed: Seed(42, 3, 1), Scored: time.Now(),
			Responses: []rollout.Response{
				{Text: "[0]", IDs: []int32{0, 9}, Logprobs: []float32{-1, -2}, Reward: 2, Parts: map[string]float64{"length": 2}, Finish: rollout.Stop, Version: 7, Instance: "fake"},
				{Text: "[1]", IDs: []int32{1, 9}, Logprobs: []float32{-1, -2}, Reward: 2, Parts: map[string]float64{"length": 2}, Finish: rollout.Stop, Version: 7, Instance: "fake"},
			},
		}, groups[1])
		require.EqualValues(t, 2, sum.PromptTokens)
		require.EqualValues(t, 8, sum.ResponseTokens)
		require.Equal(t, map[string]int{"fake": 2}, sum.ByInstance)
		for _, call := range f.calls {
			require.Equal(t, Seed(42, 3, int(call.PromptIDs[0])-1), call.Seed)
			require.Equal(t, 2, call.N)
			require.EqualValues(t, 7, call.Version)
			require.Equal(t, in.Sampling, call.Sampling)
		}
		// Without a decoder the instances' text is what counts.
		p.decode = nil
		_, groups, _, err = produce(t.Context(), t, p, in)
		require.NoError(t, err)
		require.Equal(t, "untouched", groups[0].Responses[0].Text)
	})
}

func TestSeedIsAChainOfSplitMix64(t *testing.T) {
	t.Parallel()
	for want, c := range map[uint64]struct {
		run         uint64
		step, index int
	}{
		0x44e5b98100c67fb0: {0, 1, 0}, 0x5d396f908f79bb0b: {42, 3, 1},
		0x3d7cb0d0de77a815: {7, 1000, 511}, 0xbd6726cf886f2317: {math.MaxUint64, 1, 5},
	} {
		require.Equal(t, want, Seed(c.run, c.step, c.index), "a run that resumes samples what it would have sampled")
	}
	seen := map[uint64]bool{}
	for run := range uint64(4) {
		for step := range 16 {
			for index := range 64 {
				seen[Seed(run, step, index)] = true
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
			_, _, _, err := produce(t.Context(), t, p, period(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))
			require.NoError(t, err)
			require.Equal(t, c.want, f.most)
		}
	})
}

func TestTasksFollowAFleetThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{}
		f.generate = func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			return answer(req), sleep(ctx, time.Minute)
		}
		p := newProducer(t, f, length, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, _, _, err := produce(t.Context(), t, p, period(make([]int32, 9)...))
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

// What an answer teaches the fleet about its room is used at once.
func TestTasksFollowWhatTheFleetLearns(t *testing.T) {
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
		got, _, _, err := produce(t.Context(), t, newProducer(t, f, length, nil), period(1, 9, 9, 9, 9, 9))
		require.NoError(t, err)
		require.Len(t, got, 6)
		require.Equal(t, 11*time.Second, time.Since(start), "four more as the first ends")
	})
}

func TestSamplingNeverWaitsForTheConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 1}
		p := newProducer(t, f, length, nil)
		out := make(chan rollout.Group)
		var sum Summary
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { sum, err = p.Run(t.Context(), period(1, 1, 1, 1), out) })
		<-time.After(time.Minute) // of the bubble's clock
		synctest.Wait()
		require.Len(t, f.calls, 4)
		require.Zero(t, f.now())
		n := 0
		for range out {
			n++
		}
		wg.Wait()
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, 59*time.Second, sum.Blocked)
		require.Equal(t, 4*time.Second, sum.Sampled)
	})
}

func TestRewardFailures(t *testing.T) {
	boom := errors.New("judge is out")
	for name, c := range map[string]struct {
		score scorer
		want  string
	}{
		"fails":        {func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{}, boom }, "judge is out"},
		"panics":       {func(context.Context, reward.Input) (reward.Score, error) { panic("index out of range") }, "index out of range"},
		"not a number": {func(context.Context, reward.Input) (reward.Score, error) { return reward.Score{Value: math.NaN()}, nil }, "reward is NaN"},
		"infinite": {func(context.Context, reward.Input) (reward.Score, error) {
			return reward.Score{Value: math.Inf(1)}, nil
		}, "reward is +Inf"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var mu sync.Mutex
				fn := func(ctx context.Context, in reward.Input) (reward.Score, error) {
					if in.Prompt.ID != "p1" || in.Text != "[1]" {
						return length(ctx, in)
					}
					mu.Lock()
					tries++
					mu.Unlock()
					return c.score(ctx, in)
				}
				p := newProducer(t, &fakeFleet{room: 8}, fn, func(cfg *Config) { cfg.Order = Prompt })
				got, _, sum, err := produce(t.Context(), t, p, period(1, 1, 1))
				require.NoError(t, err, "one failure is within the budget")
				require.Equal(t, 1, tries, "whether another try helps is the reward's to say")
				require.Len(t, got, 2)
				require.Equal(t, []int{0, 2}, []int{got[0].index, got[1].index})
				require.Len(t, sum.Failed, 1)
				require.Equal(t, "p1", sum.Failed[0].Prompt.ID)
				require.Equal(t, 1, sum.Failed[0].Index)
				require.False(t, sum.Failed[0].Lost)
				require.ErrorContains(t, sum.Failed[0].Err, "prompt p1: reward of response 1: ")
				require.ErrorContains(t, sum.Failed[0].Err, c.want)

				p.cfg.MaxFailed = 0
				_, _, _, err = produce(t.Context(), t, p, period(1, 1, 1))
				require.ErrorIs(t, err, ErrBudget)
				require.ErrorContains(t, err, "produce step 3: too many groups failed: 1 of 3 because of their prompt or reward, at most 0 may: prompt p1")
			})
		})
	}
}

// Responses that wait for their turn with a reward that scores one at a time,
// for hours, are not failures, and the fleet samples on meanwhile.
func TestSlowRewardHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1)
		fn := func(ctx context.Context, in reward.Input) (reward.Score, error) {
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return reward.Score{}, ctx.Err()
			}
			return reward.Score{Value: 1}, sleep(ctx, 15*time.Minute)
		}
		f := &fakeFleet{room: 2}
		p := newProducer(t, f, fn, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			got, _, sum, err := produce(t.Context(), t, p, period(1, 1, 1, 1, 1, 1))
			require.NoError(t, err)
			require.Len(t, got, 6)
			require.Empty(t, sum.Failed)
			require.Equal(t, 2, f.most)
		})
		<-time.After(4 * time.Second) // of the bubble's clock
		synctest.Wait()
		require.Len(t, f.calls, 6)
		require.Zero(t, f.now())
		wg.Wait()
	})
}

func TestFleetFailures(t *testing.T) {
	only := func(bad int32, err error) func(context.Context, inference.Request) ([]inference.Completion, error) {
		return func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
			if req.PromptIDs[0] == bad {
				return nil, err
			}
			return answer(req), sleep(ctx, time.Second)
		}
	}
	for name, c := range map[string]struct {
		err    error
		change func(*Config)
		want   error // of Run
		lost   bool
	}{
		"invalid prompt within budget": {inference.ErrInvalid, nil, nil, false},
		"invalid prompt":               {inference.ErrInvalid, func(c *Config) { c.MaxFailed = 0 }, ErrBudget, false},
		"lost":                         {inference.ErrNoInstance, nil, ErrBudget, true},
		"lost within budget":           {inference.ErrNoInstance, func(c *Config) { c.MaxLost = 1 }, nil, true},
		"stale":                        {inference.ErrStale, func(c *Config) { c.MaxLost = 9 }, inference.ErrStale, true},
		"closed":                       {inference.ErrClosed, func(c *Config) { c.MaxLost = 9 }, inference.ErrClosed, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFleet{room: 8, generate: only(5, fmt.Errorf("no: %w", c.err))}
				got, _, sum, err := produce(t.Context(), t, newProducer(t, f, length, c.change), period(1, 5, 2))
				if c.want != nil {
					require.ErrorIs(t, err, c.want)
					return
				}
				require.NoError(t, err)
				require.Len(t, got, 2)
				require.Len(t, sum.Failed, 1)
				require.Equal(t, c.lost, sum.Failed[0].Lost)
				require.ErrorIs(t, sum.Failed[0].Err, c.err)
			})
		})
	}
}

func TestAPeriodWithoutGroupsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8, generate: func(context.Context, inference.Request) ([]inference.Completion, error) {
			return nil, inference.ErrInvalid
		}}
		p := newProducer(t, f, length, func(c *Config) { c.MaxFailed = 100 })
		_, _, _, err := produce(t.Context(), t, p, period(1, 1))
		require.ErrorIs(t, err, ErrBudget)
		require.ErrorContains(t, err, "all 2")
	})
}

func TestResponsesOfAnotherVersionEndThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeFleet{room: 8, generate: func(_ context.Context, req inference.Request) ([]inference.Completion, error) {
			out := answer(req)
			out[1].Version--
			return out, nil
		}}
		got, _, _, err := produce(t.Context(), t, newProducer(t, f, length, nil), period(1))
		require.ErrorIs(t, err, inference.ErrStale)
		require.ErrorContains(t, err, "fake gave a response of version 6, expected 7")
		require.Empty(t, got)
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	hang := func(ctx context.Context, _ reward.Input) (reward.Score, error) {
		<-ctx.Done()
		return reward.Score{}, ctx.Err()
	}
	for name, c := range map[string]struct {
		score    scorer
		seconds  []int32
		consumes bool
	}{
		"while it samples":           {length, []int32{1, 100, 100}, true},
		"while it scores":            {hang, []int32{1, 1}, true},
		"while nobody reads":         {length, []int32{1, 1, 1}, false},
		"while it waits for a fleet": {length, make([]int32, 40), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := errors.New("interrupted")
				ctx, cancel := context.WithCancelCause(t.Context())
				f := &fakeFleet{room: 2}
				if len(c.seconds) == 40 {
					f.generate = func(ctx context.Context, _ inference.Request) ([]inference.Completion, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				out := make(chan rollout.Group)
				var err error
				var wg sync.WaitGroup
				wg.Go(func() { _, err = newProducer(t, f, c.score, nil).Run(ctx, period(c.seconds...), out) })
				if c.consumes {
					wg.Go(func() {
						for range out {
						}
					})
				}
				<-time.After(10 * time.Second) // of the bubble's clock
				synctest.Wait()
				cancel(stop)
				wg.Wait()
				require.ErrorIs(t, err, stop)
				_, open := <-out
				require.False(t, open)
			})
		})
	}
}

func TestPeriodAndConfigReportAllFaults(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Order: "random", InFlight: -1, MaxFailed: -1, MaxLost: -1}, nil, nil, nil)
	for _, want := range []string{`order "random"`, "in flight -1", "scoring 0", "max failed -1", "max lost -1"} {
		require.ErrorContains(t, err, want)
	}
	p := newProducer(t, &fakeFleet{}, length, nil)
	out := make(chan rollout.Group)
	_, err = p.Run(t.Context(), Period{Step: 2}, out)
	for _, want := range []string{"produce step 2", "version 0", "no prompts", "group size 0"} {
		require.ErrorContains(t, err, want)
	}
	_, open := <-out
	require.False(t, open)
}
