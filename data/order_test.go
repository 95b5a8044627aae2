package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderPermutesEachEpoch(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 7, 100, 1319} {
		o := newOrder(n, 42, true)
		for epoch := range 4 {
			seen := make([]bool, n)
			for i := range n {
				at := o.At(epoch*n + i)
				require.False(t, seen[at])
				seen[at] = true
			}
		}
	}
}

func TestOrderDependsOnlyOnPosition(t *testing.T) {
	t.Parallel()
	const n = 37
	forward := newOrder(n, 7, true)
	want := make([]int, 5*n)
	for i := range want {
		want[i] = forward.At(i)
	}
	jumping := newOrder(n, 7, true)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		i := rng.IntN(len(want))
		require.Equal(t, want[i], jumping.At(i))
	}
	require.NotEqual(t, want[:n], want[n:2*n], "epochs differ")
	other := newOrder(n, 8, true)
	same := 0
	for i := range want {
		if other.At(i) == want[i] {
			same++
		}
	}
	require.Less(t, same, n, "seeds differ")
}

func TestOrderWithoutShuffle(t *testing.T) {
	t.Parallel()
	o := newOrder(3, 9, false)
	for i, want := range []int{0, 1, 2, 0, 1, 2, 0} {
		require.Equal(t, want, o.At(i))
	}
}

// The order must never change, or older runs could not resume. The expected
// values come from an independent implementation of the documented rule in
// another language.
func TestOrderGolden(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		n     int
		seed  uint64
		first int
		want  []int
	}{
		{10, 0, 0, []int{4, 9, 2, 5, 1, 7, 6, 0, 3, 8}},
		{10, 0, 10, []int{9, 4, 0, 5, 2, 1, 6, 8, 3, 7}},
		{10, 42, 30, []int{8, 1, 5, 7, 2, 4, 6, 3, 0, 9}},
		{3, 18446744073709551615, 300, []int{2, 1, 0}},
		{1000, 1, 0, []int{42, 334, 156, 937, 526, 314, 693, 427, 988, 43}},
	} {
		t.Run(fmt.Sprintf("%d/%d/%d", row.n, row.seed, row.first), func(t *testing.T) {
			t.Parallel()
			o := newOrder(row.n, row.seed, true)
			got := make([]int, len(row.want))
			for i := range got {
				got[i] = o.At(row.first + i)
			}
			require.Equal(t, row.want, got)
		})
	}
}

// Each prompt is equally likely at each place: a chi-square test over 20,000
// epochs with a fixed seed.
func TestOrderIsUniform(t *testing.T) {
	t.Parallel()
	const n, epochs = 5, 20000
	var counts [n][n]float64
	o := newOrder(n, 3, true)
	for i := range n * epochs {
		counts[i%n][o.At(i)]++
	}
	chi := 0.0
	for _, place := range counts {
		for _, c := range place {
			chi += math.Pow(c-epochs/n, 2) / (epochs / n)
		}
	}
	require.Less(t, chi, 39.3, "16 degrees of freedom, 1 in 1000")
}

func TestOrderRefuses(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { newOrder(0, 1, true) })
	require.Panics(t, func() { newOrder(1, 1, true).At(-1) })
}
