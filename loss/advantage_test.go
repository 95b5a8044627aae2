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
		{a + b, c, c}, {-a - b, -c}, {a + b + c, c + b + a, a + (b + c)}, {1e9 * (a + b), 1e9 * c}, {0.1, 0.1, 0.1}, {0, 0}, {5}, {},
	} {
		require.True(t, Equal(rewards), "%v", rewards)
		for _, kind := range []string{GroupAdvantage, GroupMeanAdvantage, LeaveOneOutAdvantage} {
			require.Equal(t, make([]float64, len(rewards)), Advantages(kind, rewards), "%s of %v", kind, rewards)
		}
		for _, kind := range []string{BatchAdvantage, BatchBaselineAdvantage} {
			require.Equal(t, [][]float64{make([]float64, len(rewards))}, BatchAdvantages(kind, [][]float64{rewards}), "%s of %v", kind, rewards)
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

func TestRewardsAndLeaveOneOutPassOnWhatIsNotFinite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{LeaveOneOutAdvantage, RewardAdvantage} {
		for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
			for _, v := range Advantages(kind, []float64{1, bad}) {
				require.True(t, math.IsNaN(v))
			}
		}
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	rewards := []float64{0.5, 1, 0, 1, 0.25, 0}
	for _, row := range []struct {
		filter string
		n      int
		want   []int
	}{
		{BestWorst, 0, []int{0, 1, 2, 3, 4, 5}},
		{BestWorst, 6, []int{0, 1, 2, 3, 4, 5}},
		{BestWorst, 99, []int{0, 1, 2, 3, 4, 5}},
		{BestWorst, 1, []int{1}},
		{BestWorst, 2, []int{1, 5}},
		{BestWorst, 3, []int{1, 3, 5}},
		{BestWorst, 4, []int{1, 2, 3, 5}},
		{BestWorst, 5, []int{0, 1, 2, 3, 5}},
		{BestRandom, 1, []int{1}},
	} {
		require.Equal(t, row.want, Keep(row.filter, row.n, rewards, 1, 2), "%s %d", row.filter, row.n)
	}
	require.Equal(t, []float64{0.5, 1, 0, 1, 0.25, 0}, rewards)
	require.Empty(t, Keep(BestWorst, 2, nil, 1, 2))
	require.Panics(t, func() { Keep("best", 2, rewards, 1, 2) })
}

// The best is always kept, each of the others in one of five draws.
func TestKeepAtRandom(t *testing.T) {
	t.Parallel()
	rewards := []float64{0.5, 1, 0, 0.75, 0.25, 0}
	const draws = 5000
	counts := make([]int, len(rewards))
	for i := range uint64(draws) {
		kept := Keep(BestRandom, 2, rewards, 7, i)
		require.Equal(t, kept, Keep(BestRandom, 2, rewards, 7, i))
		require.Len(t, kept, 2)
		require.True(t, slices.IsSorted(kept))
		for _, k := range kept {
			counts[k]++
		}
	}
	for i, n := range counts {
		if i == 1 {
			require.Equal(t, draws, n)
		} else {
			require.InDelta(t, draws/5, n, 150) // five deviations
		}
	}
}

// "R_length(y) = 0 for |y| <= L_max - L_cache, ((L_max - L_cache) - |y|)/L_cache
// up to L_max, -1 beyond" (Yu et al. 2025, eq. 13).
func TestOverlongPenalty(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		length, limit, buffer int
		want                  float64
	}{
		{0, 100, 20, 0}, {80, 100, 20, 0}, {81, 100, 20, -0.05}, {90, 100, 20, -0.5}, {100, 100, 20, -1}, {200, 100, 20, -1},
		{100, 100, 0, 0}, {1, 2, 4, -0.75}, {20480, 20480, 4096, -1}, {18432, 20480, 4096, -0.5},
	} {
		require.InDelta(t, row.want, OverlongPenalty(row.length, row.limit, row.buffer), 1e-15, "%+v", row)
	}
}

// "Dr. GRPO" (Liu et al. 2025) is (r - mean) summed over tokens: two responses of
// a group against the formula written out.
func TestDrGRPO(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Advantage, c.Aggregation = GroupMeanAdvantage, Constant
	o, err := New(c)
	require.NoError(t, err)
	lengths := []int{1, 3}
	advantages := Advantages(c.Advantage, []float64{1, 0.5})
	v := Vars{Policy: []float32{-1, -2, -3, -4}, Old: []float32{-1, -2, -3, -4}}
	v.Advantage = perToken(lengths, func(i int) float32 { return float32(advantages[i]) })
	v.Weight = perToken(lengths, func(i int) float32 { return c.Aggregation.Weight(lengths[i]) })
	got, err := o.Eval(v)
	require.NoError(t, err)
	require.InDelta(t, -(0.25*1-0.25*3)/(2*8), got.Loss/c.Aggregation.Denominator(2, 4, 8), 1e-12)
	require.Equal(t, []float32{-0.25, 0.25, 0.25, 0.25}, got.Grad)
}
