package data

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/splitmix"
)

// In each block of 4096 positions, a part has its share, and its prompts follow
// the order of its own epochs.
func TestMixShares(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sizes   []int
		weights []float64
		want    []int // each part's places in a block
	}{
		{[]int{3, 5000}, []float64{1, 1}, []int{2048, 2048}},
		{[]int{7, 11, 13}, []float64{1, 1, 1}, []int{1366, 1365, 1365}},
		{[]int{100, 10}, []float64{0.9, 0.1}, []int{3686, 410}},
		{[]int{5, 5, 5}, []float64{1e9, 1e-9, 1}, []int{4094, 1, 1}},
		{[]int{1, 2}, []float64{math.MaxFloat64, math.MaxFloat64}, []int{2048, 2048}},
		{[]int{4}, []float64{3}, []int{4096}},
	} {
		for _, shuffle := range []bool{false, true} {
			o, err := NewMix(row.sizes, row.weights, 5, shuffle)
			require.NoError(t, err)
			parts := make([]*Order, len(row.sizes))
			for k, n := range row.sizes {
				parts[k] = newOrder(n, splitmix.Mix(5+2+uint64(k)), shuffle)
			}
			seen := make([]int, len(row.sizes))
			for i := range 3 * mixBlock {
				at, k := o.At(i), 0
				for at >= row.sizes[k] {
					at -= row.sizes[k]
					k++
				}
				require.Equal(t, parts[k].At(seen[k]), at)
				seen[k]++
				if (i+1)%mixBlock == 0 {
					for k, n := range row.want {
						require.Equal(t, n*(i+1)/mixBlock, seen[k])
					}
				}
			}
		}
	}
}

func TestMixDependsOnlyOnPosition(t *testing.T) {
	t.Parallel()
	make3 := func(seed uint64) *Order {
		o, err := NewMix([]int{37, 1000, 5}, []float64{1, 2, 0.5}, seed, true)
		require.NoError(t, err)
		return o
	}
	forward, jumping, other := make3(7), make3(7), make3(8)
	want := make([]int, 3*mixBlock)
	same := 0
	for i := range want {
		want[i] = forward.At(i)
		if other.At(i) == want[i] {
			same++
		}
	}
	require.Less(t, same, len(want)/4)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		i := rng.IntN(len(want))
		require.Equal(t, want[i], jumping.At(i))
	}
	require.NotPanics(t, func() { jumping.At(1 << 40) })
}

// The order must never change, or older runs could not resume. The expected
// values come from an independent implementation of the documented rule in
// another language.
func TestMixGolden(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sizes   []int
		weights []float64
		seed    uint64
		shuffle bool
		first   int
		want    []int
	}{
		{[]int{3, 5}, []float64{1, 1}, 0, true, 0, []int{7, 0, 1, 2, 0, 1, 4, 2, 6, 1, 5, 0}},
		{[]int{100, 7, 50}, []float64{3, 1, 0.5}, 42, true, 4090,
			[]int{102, 73, 100, 37, 0, 7, 52, 58, 106, 103, 13, 104}},
		{[]int{5, 1000}, []float64{1, 4}, 18446744073709551615, true, 9000,
			[]int{144, 861, 430, 3, 192, 720, 540, 0, 750, 887, 49, 1}},
		{[]int{4, 6, 2}, []float64{1, 2, 1}, 1, false, 0, []int{4, 0, 10, 5, 6, 1, 11, 7, 8, 2, 10, 9}},
	} {
		o, err := NewMix(row.sizes, row.weights, row.seed, row.shuffle)
		require.NoError(t, err)
		got := make([]int, len(row.want))
		for i := range got {
			got[i] = o.At(row.first + i)
		}
		require.Equal(t, row.want, got)
	}
}

func TestMixWithoutWeights(t *testing.T) {
	t.Parallel()
	o, err := NewMix([]int{3, 4}, nil, 9, true)
	require.NoError(t, err)
	plain := newOrder(7, 9, true)
	for i := range 30 {
		require.Equal(t, plain.At(i), o.At(i))
	}
}

func TestMixRefuses(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]struct {
		sizes   []int
		weights []float64
	}{
		"no parts":                    {nil, nil},
		"part 2 has 0":                {[]int{1, 0}, nil},
		"part 2 has 2147483647":       {[]int{1, math.MaxInt32}, nil},
		"1 weights for 2 parts":       {[]int{1, 2}, []float64{1}},
		"weight 2 is 0":               {[]int{1, 2}, []float64{1, 0}},
		"weight 1 is NaN":             {[]int{1, 2}, []float64{math.NaN(), 1}},
		"weight 1 is +Inf":            {[]int{1, 2}, []float64{math.Inf(1), 1}},
		"257 parts, expected at most": {make257(), make([]float64, 257)},
	} {
		_, err := NewMix(row.sizes, row.weights, 1, true)
		require.ErrorContains(t, err, want)
	}
}

func make257() []int {
	sizes := make([]int, 257)
	for i := range sizes {
		sizes[i] = 1
	}
	return sizes
}
