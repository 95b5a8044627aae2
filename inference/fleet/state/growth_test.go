package state

import (
	"testing"
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

func TestGrowth(t *testing.T) {
	t.Parallel()
	g := growth{share: 1}
	require.False(t, g.add(responses(7)), "a single response grows to its end")
	require.False(t, g.add(responses(5, 5, 5)))
	require.Equal(t, 1.0, g.share)
	require.True(t, g.add(responses(10, 40, 10, 20)))
	require.InDelta(t, (7+15+80)/(7+15+160.), g.share, 1e-9)

	// The share follows a change in steps of a tenth and then settles.
	moved := 0
	for range 10 * recent {
		if g.add(responses(100, 10, 10)) {
			moved++
		}
	}
	require.InEpsilon(t, 120/300., g.share, 0.1)
	require.Less(t, moved, 5)
	for range 10 * recent {
		g.add(responses(100, 100, 100))
	}
	require.InEpsilon(t, 1, g.share, 0.1)
}

// When a quarter of the outstanding responses are growing, instances get four times as
// many.
func TestTargetInFlightFollowsGrowth(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	s := New(config(), now)
	serve(t, s, "a", 16)
	serve(t, s, "b", 16)
	require.Equal(t, 10+4, s.TargetInFlight(8), "1.5 and 1 times 32 responses, plus two requests each")
	_, err := s.Enqueue(now, NewRequest(request(8, 10)))
	require.NoError(t, err)
	s.Settle(now, s.Take().Grants[0], Outcome{Completions: responses(10, 1, 1, 1, 1, 1, 1, 4)})
	require.Equal(t, 0.25, s.members.growth.share)
	require.Equal(t, 28+4, s.TargetInFlight(8))
}
