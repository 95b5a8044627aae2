package loss

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rewards that are sums of parts in different orders are equal but for rounding.
func TestRoundingNoiseTeachesNothing(t *testing.T) {
	t.Parallel()
	a, b, c := 0.1, 0.2, 0.3
	for _, rewards := range [][]float64{
		{a + b, c, c}, {-a - b, -c}, {a + b + c, c + b + a, a + (b + c)}, {1e9 * (a + b), 1e9 * c}, {0.1, 0.1, 0.1},
		{0, 0}, {5}, {},
	} {
		require.True(t, Equal(rewards), "%v", rewards)
		for _, kind := range []string{GroupAdvantage, GroupMeanAdvantage, LeaveOneOutAdvantage} {
			require.Equal(t, make([]float64, len(rewards)), Advantages(kind, rewards), "%s of %v", kind, rewards)
		}
		for _, kind := range []string{BatchAdvantage, BatchBaselineAdvantage} {
			require.Equal(t, [][]float64{make([]float64, len(rewards))}, BatchAdvantages(kind, [][]float64{rewards}),
				"%s of %v", kind, rewards)
		}
	}
	for _, rewards := range [][]float64{{0, 1e-6}, {1, 1 + 1e-9}, {-1, 1}, {math.NaN()}, {math.Inf(1), math.Inf(1)}} {
		require.False(t, Equal(rewards), "%v", rewards)
	}
}

// A tiny but real difference is no large advantage: the deviation has a floor.
func TestDeviationHasAFloor(t *testing.T) {
	t.Parallel()
	for _, v := range Advantages(GroupAdvantage, []float64{0.5, 0.5 + 1e-8, 0.5, 0.5}) {
		require.InDelta(t, 0, v, 1e-3)
	}
	for _, v := range BatchAdvantages(BatchAdvantage, [][]float64{{0.5, 0.5 + 1e-8}, {0.5}}) {
		for _, a := range v {
			require.InDelta(t, 0, a, 1e-3)
		}
	}
}

func TestBatchAdvantages(t *testing.T) {
	t.Parallel()
	groups := [][]float64{{1, 0, 0.1}, {0.1, 0.1, 0.1}, {0.3, 0.7}, {0.9}, {1e3, -7, 0.25}}
	for _, kind := range []string{BatchAdvantage, BatchBaselineAdvantage} {
		require.True(t, WholeBatch(kind))
		require.Panics(t, func() { Advantages(kind, groups[0]) })
		want := BatchAdvantages(kind, groups)
		require.Equal(t, []float64{1, 0, 0.1}, groups[0], "the rewards are kept")
		reversed := slices.Clone(groups)
		slices.Reverse(reversed)
		got := BatchAdvantages(kind, reversed)
		slices.Reverse(got)
		require.Equal(t, want, got, "the same bits in any order")
		if kind == BatchBaselineAdvantage {
			require.Equal(t, []float64{0, 0, 0}, want[1])
			require.Equal(t, []float64{0}, want[3])
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			for i, group := range BatchAdvantages(kind, [][]float64{{1, 0}, {bad, 0}}) {
				for _, a := range group {
					require.True(t, math.IsNaN(a), "%s, group %d", kind, i)
				}
			}
		}
	}
	for _, kind := range []string{GroupAdvantage, GroupMeanAdvantage, LeaveOneOutAdvantage, RewardAdvantage} {
		require.False(t, WholeBatch(kind))
	}
	require.Panics(t, func() { BatchAdvantages("rank", groups) })
	require.Empty(t, BatchAdvantages(BatchAdvantage, nil))
}

func TestRewardsAndLeaveOneOutKeepNonFinite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{LeaveOneOutAdvantage, RewardAdvantage} {
		for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
			for _, v := range Advantages(kind, []float64{1, bad}) {
				require.True(t, math.IsNaN(v))
			}
		}
	}
}

// Dividing by an infinite deviation would turn large rewards into no signal.
func TestDeviationThatOverflows(t *testing.T) {
	t.Parallel()
	require.True(t, math.IsNaN(Advantages(GroupAdvantage, []float64{1e300, 0})[0]))
	for _, kind := range []string{BatchAdvantage, BatchBaselineAdvantage} {
		require.True(t, math.IsNaN(BatchAdvantages(kind, [][]float64{{1e300, 0}, {1, 0}})[1][0]), kind)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	rewards := []float64{0.5, 1, 0, 1, 0.25, 0}
	for n, want := range map[int][]int{
		0: {0, 1, 2, 3, 4, 5}, 6: {0, 1, 2, 3, 4, 5}, 99: {0, 1, 2, 3, 4, 5},
		1: {1}, 2: {1, 5}, 3: {1, 3, 5}, 4: {1, 2, 3, 5}, 5: {0, 1, 2, 3, 5},
	} {
		require.Equal(t, want, Keep(n, rewards), n)
	}
	require.Equal(t, []float64{0.5, 1, 0, 1, 0.25, 0}, rewards)
	require.Empty(t, Keep(2, nil))
}

// A signal is an advantage that is trained: of a kept response, and not 0 in float32.
func TestSignal(t *testing.T) {
	t.Parallel()
	all, one, two := []int{0}, []int{0, 1}, []int{1}
	require.True(t, Signal([]float64{-1e-30}, all))
	require.False(t, Signal([]float64{0, 0}, one))
	require.False(t, Signal([]float64{1e-50, 0}, one), "0 in float32")
	require.True(t, Signal([]float64{0, math.NaN()}, one), "reported as an error later")
	require.False(t, Signal([]float64{1, 0}, two), "not kept")
	require.False(t, Signal(nil, nil))
}

func TestMaySignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, advantage string
		keep            int
		rewards         []float64
		want            bool
	}{
		{"spread", GroupAdvantage, 0, []float64{0, 1}, true},
		{"no spread", GroupAdvantage, 0, []float64{1, 1}, false},
		{"spread of rounding", GroupMeanAdvantage, 0, []float64{0.1 + 0.2, 0.3}, false},
		{"spread that float32 loses", GroupMeanAdvantage, 0, []float64{0, 1e-60}, false},
		{"no spread", LeaveOneOutAdvantage, 0, []float64{1, 1, 1}, false},
		{"no spread but rewards", RewardAdvantage, 0, []float64{1, 1}, true},
		{"one response", RewardAdvantage, 0, []float64{-1}, true},
		{"no reward", RewardAdvantage, 0, []float64{0, 0}, false},
		{"spread but the kept one has none", RewardAdvantage, 1, []float64{-1, 0, -2}, false},
		{"one response", BatchAdvantage, 0, []float64{1}, true},
		{"no spread", BatchAdvantage, 0, []float64{0, 0}, true},
		{"spread", BatchBaselineAdvantage, 0, []float64{0, 1}, true},
		{"no spread", BatchBaselineAdvantage, 0, []float64{1, 1}, false},
	} {
		cfg := Default()
		cfg.Advantage, cfg.Keep = c.advantage, c.keep
		require.Equal(t, c.want, cfg.MaySignal(c.rewards), "%s, %s", c.advantage, c.name)
	}
}
