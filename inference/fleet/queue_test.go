package fleet

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// prompt returns a request of n tokens. The first shared tokens are the same in every prompt.
func prompt(n, shared, from int) inference.Request {
	req := request(1, 1)
	req.PromptIDs = make([]int32, n)
	for i := range req.PromptIDs {
		req.PromptIDs[i] = int32(i)
		if i >= shared {
			req.PromptIDs[i] = int32(from + i)
		}
	}
	return req
}

func TestSendsPromptToInstanceWithItsPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := fake("a", 4), fake("b", 4), fake("c", 4)
		f := newFleet(t, nil, a, b, c)
		var wg sync.WaitGroup
		var mu sync.Mutex
		at := map[string]string{}
		send := func(name string, req inference.Request) {
			wg.Go(func() {
				_, id, err := f.Generate(t.Context(), req)
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				at[name] = id
			})
			synctest.Wait()
		}
		first, second := prompt(200, 128, 1000), prompt(200, 128, 2000)
		longer := prompt(300, 128, 2000)
		send("first", first)
		send("second", second) // a has 128 of its tokens and hardly more to do
		wg.Wait()
		send("load", request(1, 1))
		send("more", request(1, 1))
		send("second again", second)
		send("longer", longer)
		wg.Wait()
		require.Equal(t, map[string]string{"first": "a", "second": "a", "load": "a", "more": "b", "second again": "a",
			"longer": "c"}, at,
			"on a, the last would wait behind twice the work")
		send("longer again", longer) // c has all its tokens
		send("third", prompt(200, 128, 3000))
		wg.Wait()
		require.Equal(t, "c", at["longer again"])
		require.Equal(t, "a", at["third"],
			"a prefix that two instances hold, such as a system prompt, binds to neither")

		require.NoError(t, f.Publish(t.Context(), fakeWeights(2)))
		longer.Version = 2
		send("longer under new weights", longer)
		wg.Wait()
		require.Equal(t, "a", at["longer under new weights"], "new weights empty the cache")
		require.NoError(t, f.Close())
	})
}

// instantInstance answers at once, always with the same array of tokens.
type instantInstance struct {
	fakeInstance
	out []inference.Completion
}

func (i *instantInstance) Generate(context.Context, inference.Request) ([]inference.Completion, error) {
	runtime.Gosched()
	return i.out, nil
}

// BenchmarkFleet sends a request through fleets of several sizes, with 4,000 concurrent
// callers. It reports how much the heap has grown afterwards.
func BenchmarkFleet(b *testing.B) {
	for _, size := range []int{10, 1000} {
		b.Run(map[int]string{10: "10", 1000: "1000"}[size], func(b *testing.B) {
			f, err := New(DefaultConfig())
			require.NoError(b, err)
			for i := range size {
				inst := &instantInstance{out: []inference.Completion{{IDs: []int32{1}, Logprobs: []float32{-1},
					Version: 1}}}
				inst.id, inst.capacity = time.Duration(i).String(), 1
				require.NoError(b, f.Add(b.Context(), inst))
			}
			require.NoError(b, f.Publish(b.Context(), fakeWeights(1)))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			work := make(chan int)
			var wg sync.WaitGroup
			for range 4000 {
				wg.Go(func() {
					for i := range work {
						req := prompt(128, 64, i)
						if _, _, err := f.Generate(b.Context(), req); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				work <- i
			}
			close(work)
			wg.Wait()
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MiB-kept")
			require.NoError(b, f.Close())
		})
	}
}
