package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/rollout"
)

// generateAll sends all requests at once and returns their results in order.
func generateAll(t testing.TB, e *Engine, reqs []inference.Request) [][]inference.Completion {
	t.Helper()
	out := make([][]inference.Completion, len(reqs))
	errs := make([]error, len(reqs))
	var wg sync.WaitGroup
	for i := range reqs {
		wg.Go(func() { out[i], errs[i] = e.Generate(t.Context(), reqs[i]) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return out
}

// Regardless of cache size and rows, every request yields the samples of a
// sequential reference.
func TestResponsesMatchReference(t *testing.T) {
	t.Parallel()
	var reqs []inference.Request
	for i, length := range []int{1, 2, 15, 16, 17, 31, 32, 33, 48, 60, 5, 16} {
		r := request(length, 1+i%5, 1+i*5)
		if i%3 == 0 {
			r.Sampling.StopIDs = []int32{3, 9}
		}
		if i%4 == 1 {
			r.Sampling.Stop = []string{"zz", "b"}
		}
		r.PromptLogprobs, r.FirstIndex = i%2 == 0, i%5
		reqs = append(reqs, r)
	}
	reqs[3].Sampling.Temperature = 0
	var want [][]inference.Completion
	for _, r := range reqs {
		want = append(want, references(1, r, 256, letters{}))
	}
	for _, cfg := range []Config{
		{MaxRunning: 64},
		{MaxRunning: 1},
		{MaxRunning: 3, CachePages: 16},
		{MaxRunning: 64, CachePages: 8},
		{MaxRunning: 64, CachePages: 7, PrefillRows: 5},
		{MaxRunning: 7, CachePages: 11, PrefillRows: 16},
		{MaxRunning: 2, CachePages: 7, PrefillRows: 33},
	} {
		t.Run(fmt.Sprintf("%d rows, %d pages, prefill %d", cfg.MaxRunning, cfg.CachePages, cfg.PrefillRows),
			func(t *testing.T) {
				t.Parallel()
				e, m := startFake(t, cfg)
				require.Equal(t, want, generateAll(t, e, reqs))
				for i, r := range reqs { // alone
					got, err := e.Generate(t.Context(), r)
					require.NoError(t, err)
					require.Equal(t, want[i], got)
				}
				require.LessOrEqual(t, m.most, cfg.MaxRunning)
				closeFake(t, e)
			})
	}
}

// With random requests, cache sizes and cancellations, everything ends, and every
// result without an error is correct.
func TestSchedulerProperty(t *testing.T) {
	t.Parallel()
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	var preempted, replayed int64
	for round := range rounds {
		rng := rand.New(rand.NewPCG(1, uint64(round)))
		cfg := Config{MaxRunning: 1 + rng.IntN(12), CachePages: 4 + rng.IntN(20), PrefillRows: 1 + rng.IntN(80)}
		e, _ := startFake(t, cfg)
		var wg sync.WaitGroup
		for i := range 1 + rng.IntN(12) {
			r := request(1+rng.IntN(50), 1+rng.IntN(6), 1+rng.IntN(60))
			r.Seed = uint64(i)
			if rng.IntN(2) == 0 {
				r.Sampling.StopIDs = []int32{int32(rng.IntN(testVocab))}
			}
			if rng.IntN(3) == 0 {
				r.Sampling.Stop = []string{string(rune('a' + rng.IntN(testVocab)))}
			}
			r.PromptLogprobs = rng.IntN(3) == 0
			leaves := rng.IntN(5) == 0
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if leaves {
					go cancel()
				}
				out, err := e.Generate(ctx, r)
				switch {
				case err == nil:
					require.Equal(t, references(1, r, 256, letters{}), out)
				case leaves && errors.Is(err, context.Canceled):
				default:
					require.ErrorIs(t, err, inference.ErrInvalid)
					require.Greater(t, pagesFor(len(r.PromptIDs)+r.Sampling.MaxTokens-1), cfg.CachePages)
				}
			})
		}
		wg.Wait()
		closeFake(t, e)
		preempted += e.Stats().Preemptions
		replayed += e.Stats().ReplayRows
	}
	require.Positive(t, preempted, "the caches are small enough to matter")
	require.Positive(t, replayed)
}

func TestEarlierGroupsFinishFirst(t *testing.T) {
	t.Parallel()
	e, m := newFake(t, Config{MaxRunning: 4})
	require.NoError(t, e.loop.take(&publishOrder{ctx: t.Context(), weights: fakeWeights(1)}))
	var groups []*group
	for i := range 3 {
		g, err := e.newGroup(t.Context(), request(20+i, 6, 5))
		require.NoError(t, err)
		groups = append(groups, g)
		e.loop.enqueue(g)
	}
	var ends []int64
	for len(e.loop.sched.groups) > 0 {
		first := e.loop.sched.groups[0]
		e.loop.sampler.admit()
		e.loop.sampler.step()
		if len(e.loop.sched.groups) == 0 || e.loop.sched.groups[0] != first {
			ends = append(ends, first.number)
		}
		for i := 1; i < len(e.loop.sched.groups); i++ {
			if e.loop.sched.groups[i].running > 0 {
				require.Empty(t, e.loop.sched.groups[i-1].pending,
					"a group starts when those before it have all started")
			}
		}
	}
	require.Equal(t, []int64{1, 2, 3}, ends)
	require.EqualValues(t, 20+21+22, e.loop.stats.PrefillRows, "each prompt ran once")
	require.Equal(t, 4, m.most)
	for _, g := range groups {
		require.NoError(t, g.err)
	}
}

func TestPromptPagesAreShared(t *testing.T) {
	t.Parallel()
	e, _ := newFake(t, Config{MaxRunning: 8})
	require.NoError(t, e.loop.take(&publishOrder{ctx: t.Context(), weights: fakeWeights(1)}))
	g, err := e.newGroup(t.Context(), request(40, 8, 20))
	require.NoError(t, err)
	e.loop.enqueue(g)
	require.True(t, e.loop.sampler.admit())
	require.Equal(t, 8, e.loop.sched.rows)
	require.Equal(t, e.cfg.CachePages-2-8, len(e.loop.sched.pages.free),
		"two shared full pages and one page per response")
	for _, s := range e.loop.sched.running {
		require.Equal(t, e.loop.sched.running[0].pages[:2], s.pages[:2])
		require.Len(t, s.ids, 1, "the prompt's pass samples the first token")
	}
	for e.loop.sched.rows > 0 {
		e.loop.sampler.step()
	}
	require.Len(t, e.loop.sched.pages.free, e.cfg.CachePages)
	require.EqualValues(t, 19, e.loop.stats.Steps)
}

func TestStepAllocatesNothing(t *testing.T) {
	e, m := newFake(t, Config{MaxRunning: 16})
	require.NoError(t, e.loop.take(&publishOrder{ctx: t.Context(), weights: fakeWeights(1)}))
	for i := range 2 {
		g, err := e.newGroup(t.Context(), request(30+i, 8, 200))
		require.NoError(t, err)
		e.loop.enqueue(g)
	}
	e.loop.sampler.admit()
	for range 20 {
		e.loop.sampler.step()
	}
	e.loop.sampler.m = quiet{m, npu.HostBuffer(m.logits)}
	allocs := testing.AllocsPerRun(150, func() {
		e.loop.dropCancelled()
		e.loop.sampler.admit()
		e.loop.sampler.step()
		e.loop.report()
	})
	require.Less(t, allocs, 0.5, "page tables grow occasionally, but steps do not allocate")
	require.Equal(t, 16, e.loop.sched.rows)
}

// quiet is a fakeModel without its checks, which allocate.
type quiet struct {
	*fakeModel
	held npu.Buffer // of the logits
}

func (q quiet) setPages(int32, int, []int32) {}

func (q quiet) step(rows []model.Row, _ []npu.SampleParams, ids []int32, logp []float32) (npu.Buffer, error) {
	for i := range ids {
		ids[i], logp[i] = int32(i), -1
	}
	return q.held.Slice(0, len(rows)*testVocab), nil
}

func TestGenerateRefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	e, _ := startFake(t, Config{MaxRunning: 4, CachePages: 4})
	for name, c := range map[string]struct {
		change func(*inference.Request)
		want   string
	}{
		"no responses": {func(r *inference.Request) { r.N = 0 }, "0 responses"},
		"long prompt": {func(r *inference.Request) { r.PromptIDs = prompt(256, 1) },
			"prompt of 256 tokens, expected fewer than the context of 256"},
		"unknown token": {func(r *inference.Request) { r.PromptIDs = []int32{1, testVocab} },
			"prompt token 1 is 50, expected 0 to 49"},
		"never fits": {func(r *inference.Request) { r.PromptIDs = prompt(50, 1); r.Sampling.MaxTokens = 16 },
			"need 5 cache pages, but the engine has 4"},
		"bad temperature": {func(r *inference.Request) { r.Sampling.Temperature = -1 }, "temperature is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(3, 1, 5)
			c.change(&r)
			_, err := e.Generate(t.Context(), r)
			require.ErrorIs(t, err, inference.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
	r := request(50, 3, 15) // fits exactly
	require.Equal(t, references(1, r, 256, letters{}), generateAll(t, e, []inference.Request{r})[0])
	closeFake(t, e)

	none, m := newFake(t, Config{MaxRunning: 1})
	none.tok = nil
	go none.run()
	_, err := none.Generate(t.Context(), request(3, 1, 5))
	require.ErrorIs(t, err, inference.ErrStale)
	r = request(3, 1, 5)
	r.Sampling.Stop = []string{"x"}
	_, err = none.Generate(t.Context(), r)
	require.ErrorIs(t, err, inference.ErrInvalid)
	require.NoError(t, none.Close())
	require.True(t, m.closed)
	require.NoError(t, none.Close())
	_, err = none.Generate(t.Context(), request(3, 1, 5))
	require.ErrorIs(t, err, inference.ErrClosed)
	_, err = none.Publish(t.Context(), fakeWeights(1))
	require.ErrorIs(t, err, inference.ErrClosed)
}

func TestContextLimitsMaxTokens(t *testing.T) {
	t.Parallel()
	e, _ := startFake(t, Config{MaxRunning: 4, Context: 40})
	out, err := e.Generate(t.Context(), request(30, 2, 1000))
	require.NoError(t, err)
	require.Len(t, out[0].IDs, 10)
	require.Equal(t, rollout.Length, out[0].Finish)
	closeFake(t, e)
}

func TestPublishEndsRunningRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := startFake(t, Config{MaxRunning: 2})
		gate := make(chan struct{})
		m.gate = gate
		var wg sync.WaitGroup
		errs := make([]error, 3)
		outs := make([][]inference.Completion, 3)
		reqs := []inference.Request{request(20, 2, 9), request(21, 1, 9), request(22, 1, 9)}
		reqs[2].Version = 1
		for i := range reqs {
			wg.Go(func() { outs[i], errs[i] = e.Generate(t.Context(), reqs[i]) })
			synctest.Wait() // the first fills the rows, the others wait
		}
		wg.Go(func() {
			_, err := e.Publish(t.Context(), fakeWeights(13))
			require.ErrorContains(t, err, "publish version 13: different shape")
			sum, err := e.Publish(t.Context(), fakeWeights(2))
			require.NoError(t, err)
			require.Equal(t, "sum-2", sum)
		})
		for range 2 { // one step boundary per publish
			synctest.Wait()
			gate <- struct{}{}
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		require.ErrorIs(t, errs[0], inference.ErrStale)
		require.ErrorContains(t, errs[0], "version 2 was published while the request ran")
		require.NoError(t, errs[1])
		require.Equal(t, references(2, reqs[1], 256, letters{}), outs[1],
			"a waiting request runs under the new weights")
		require.ErrorIs(t, errs[2], inference.ErrStale)
		require.EqualValues(t, 2, e.Stats().Version)
		closeFake(t, e)
	})
}

func TestCancelFreesPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, m := startFake(t, Config{MaxRunning: 4})
		gate := make(chan struct{}, 1)
		m.gate = gate
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := e.Generate(ctx, request(20, 3, 50))
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		gate <- struct{}{}
		synctest.Wait()
		s := e.Stats()
		require.Equal(t, s.CachePages, s.FreePages)
		require.Zero(t, s.Running+s.Waiting)

		wg.Go(func() {
			_, err := e.Generate(t.Context(), request(20, 3, 50))
			require.ErrorIs(t, err, inference.ErrClosed)
		})
		synctest.Wait()
		close(gate)
		closeFake(t, e)
		wg.Wait()
	})
}

func TestDeviceFailureEndsRunningRequests(t *testing.T) {
	t.Parallel()
	e, m := newFake(t, Config{MaxRunning: 2})
	require.NoError(t, e.loop.take(&publishOrder{ctx: t.Context(), weights: fakeWeights(1)}))
	var groups []*group
	for range 2 {
		g, err := e.newGroup(t.Context(), request(20, 2, 5))
		require.NoError(t, err)
		groups = append(groups, g)
		e.loop.enqueue(g)
	}
	e.loop.sampler.admit()
	m.failing = errors.New("device lost")
	e.loop.sampler.step()
	require.ErrorContains(t, groups[0].err, "decode: device lost")
	require.NoError(t, groups[1].err)
	m.failing = nil
	m.nan = true
	e.loop.sampler.admit()
	require.ErrorContains(t, groups[1].err, "response 0 token 0: sampled token")
	require.Len(t, e.loop.sched.pages.free, e.cfg.CachePages)
	require.Zero(t, e.loop.sched.rows)
}

func TestStatsAndSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans, tokens, seeds := map[string]int{}, map[string]int{}, map[string][]uint64{}
		var rests []bool
		hear := func(s Span) {
			spans[s.Name]++
			tokens[s.Name] += s.Tokens
			seeds[s.Name] = append(seeds[s.Name], s.Seeds...)
		}
		e, _ := startFake(t, Config{MaxRunning: 4, Span: hear,
			Rest: func(resting bool) { rests = append(rests, resting) }})
		synctest.Wait()
		require.Equal(t, true, rests[len(rests)-1])
		_, err := e.Generate(t.Context(), request(20, 3, 5))
		require.NoError(t, err)
		synctest.Wait()
		s := e.Stats()
		require.EqualValues(t, 15, s.Tokens)
		require.EqualValues(t, 20, s.PrefillRows)
		require.EqualValues(t, 4, s.Steps)
		closeFake(t, e)
		require.Equal(t, 1, spans["prefill"])
		require.Equal(t, 1, spans["decode"], "steps in a row are one span")
		require.Positive(t, spans["idle"])
		require.Equal(t, map[string]int{"prefill": 20, "decode": 12, "publish": 0, "idle": 0}, tokens)
		mine := []uint64{request(20, 3, 5).Seed}
		require.Equal(t, map[string][]uint64{"prefill": mine, "decode": mine, "publish": nil, "idle": nil},
			seeds, "each once")
		for i, resting := range rests {
			require.Equal(t, i%2 == 0, resting)
		}
		require.Greater(t, len(rests), 2)
	})
}

func TestStopStringsInLongResponses(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"q", "aé", "hé", "no such text"} {
		e, _ := startFake(t, Config{MaxRunning: 4})
		r := request(3, 4, 250)
		r.Sampling.Stop = []string{"no such text either", stop}
		out, err := e.Generate(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, references(1, r, 256, letters{}), out)
		closeFake(t, e)
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	t.Parallel()
	c := Config{CachePages: -1, PrefillRows: -1, Context: -1}
	for _, want := range []string{"id is empty", "max running is 0", "cache pages is -1", "prefill rows is -1",
		"context is -1"} {
		require.ErrorContains(t, c.Validate(), want)
	}
}

// Ended is called for each response at the step in which it ends, except for the last, and
// the result is the same without it.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		e, m := startFake(t, Config{MaxRunning: 8})
		m.gate = gate
		req := request(5, 6, 40)
		req.Sampling.StopIDs = []int32{1, 3, 9, 12}
		want := references(1, req, 256, letters{})
		longest := 0
		for _, c := range want {
			longest = max(longest, len(c.IDs))
		}
		told := map[int]inference.Completion{}
		req.Ended = func(index int, c inference.Completion) { told[index] = c }
		var got []inference.Completion
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			got, err = e.Generate(t.Context(), req)
			require.NoError(t, err)
		})
		early := 0
		for tokens := 1; tokens < longest; tokens++ { // the prefill samples the first
			synctest.Wait()
			ended := map[int]inference.Completion{}
			for i, c := range want {
				if len(c.IDs) <= tokens {
					ended[i] = c
				}
			}
			require.Equal(t, ended, told, "after %d tokens", tokens)
			early = len(ended)
			gate <- struct{}{}
		}
		wg.Wait()
		require.Equal(t, want, got)
		require.Greater(t, early, 1, "the case has responses of different lengths")
		m.gate = nil
		closeFake(t, e)
	})
}

// Ended may read the log-probabilities of the prompt while later responses run parts of the prompt again.
func TestEndedReadsPromptLogprobs(t *testing.T) {
	t.Parallel()
	e, _ := startFake(t, Config{MaxRunning: 1, PrefillRows: 5})
	req := request(30, 4, 8)
	req.PromptLogprobs = true
	want := references(1, req, 256, letters{})
	ended := 0
	req.Ended = func(index int, c inference.Completion) {
		require.Equal(t, want[index], c)
		ended++
	}
	got, err := e.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.LessOrEqual(t, ended, 3)
	require.Positive(t, e.Stats().ReplayRows, "parts of the prompt ran again")
	closeFake(t, e)
}

// A prompt longer than a prefill runs in chunks, not token by token.
func TestLongPromptRunsInChunks(t *testing.T) {
	t.Parallel()
	e, _ := startFake(t, Config{MaxRunning: 2, PrefillRows: 8})
	req := request(90, 2, 4)
	req.PromptLogprobs = true
	got, err := e.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, references(1, req, 256, letters{}), got)
	require.LessOrEqual(t, e.Stats().Steps, int64(90/8+2*4+2))
	closeFake(t, e)
}
