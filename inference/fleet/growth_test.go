package fleet

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
)

// responses returns completions with these numbers of tokens.
func responses(lengths ...int) []inference.Completion {
	out := make([]inference.Completion, len(lengths))
	for i, n := range lengths {
		out[i] = inference.Completion{IDs: make([]int32, n), Logprobs: make([]float32, n), Version: 1}
	}
	return out
}

// unequal returns an instance that answers after ten seconds, the time of its longest
// response. On average a quarter of its eight responses are growing.
func unequal(id string, capacity int) *fakeInstance {
	return faulty(id, capacity, func(ctx context.Context, req inference.Request) ([]inference.Completion, error) {
		out := responses(10, 1, 1, 1, 1, 1, 1, 4)
		return out[:req.N], sleep(ctx, 10*time.Second)
	})
}

// ask sends f n requests for this many responses each.
func ask(t *testing.T, f *Fleet, wg *sync.WaitGroup, n, responses int) {
	t.Helper()
	req := request(responses, 1)
	req.Sampling.MaxTokens = 10
	for range n {
		wg.Go(func() {
			_, _, err := f.Generate(t.Context(), req)
			require.NoError(t, err)
		})
	}
	synctest.Wait()
}

// Once the fleet has seen that a quarter of the outstanding responses grow, it gives each
// instance four times as many, even one that has not answered yet.
func TestFillsSlotsBesideLongResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := unequal("a", 16), unequal("b", 16)
		f := newFleet(t, nil, a)
		require.Equal(t, 5+2, f.TargetInFlight(8), "1.5 and 1 times 16 responses, plus two requests")
		var wg sync.WaitGroup
		ask(t, f, &wg, 40, 8)
		require.Equal(t, 3*8, a.seen().most, "at first, every response is assumed to grow")
		pass(t, 5*time.Second)
		require.NoError(t, f.Add(t.Context(), b))
		synctest.Wait()
		require.Equal(t, 3*8, b.seen().most, "a new instance gets work at once")
		pass(t, 5*time.Second)
		require.Equal(t, 12*8, a.seen().most, "24 of 96 responses grow")
		require.Equal(t, 12*8, b.seen().most, "a new instance uses the fleet's growth")
		require.Equal(t, 28+4, f.TargetInFlight(8))
		wg.Wait()
		require.NoError(t, f.Close())
	})
}

// A request for many responses leaves slots empty towards its end, unless a second request
// is waiting.
func TestKeepsRequestAhead(t *testing.T) {
	for ahead, want := range map[float64]int{0: 1, 0.01: 2} {
		synctest.Test(t, func(t *testing.T) {
			a := fake("a", 4)
			f := newFleet(t, func(c *Config) { c.Ahead = ahead }, a)
			var wg sync.WaitGroup
			ask(t, f, &wg, 5, 64)
			require.Equal(t, want*64, a.seen().most)
			require.GreaterOrEqual(t, f.TargetInFlight(64), want+1)
			wg.Wait()
			require.Equal(t, want*64, a.seen().most)
			require.NoError(t, f.Close())
		})
	}
}
