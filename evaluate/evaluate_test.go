package evaluate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// subsets calls f with the number of right responses of each way to draw k of n
// of which the first c are right.
func subsets(n, c, k int, f func(right int)) {
	for mask := range 1 << n {
		size, right := 0, 0
		for i := range n {
			if mask>>i&1 == 1 {
				size++
				if i < c {
					right++
				}
			}
		}
		if size == k {
			f(right)
		}
	}
}

func TestEstimatorsCountAllDraws(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				for _, tau := range []float64{0, 0.25, 0.5, 0.75, 1} {
					all, pass, share := 0.0, 0.0, 0.0
					subsets(n, c, k, func(right int) {
						all++
						if right > 0 {
							pass++
						}
						if right >= max(1, int(math.Ceil(tau*float64(k)))) {
							share++
						}
					})
					require.InDelta(t, pass/all, PassAtK(n, c, k), 1e-12, "n %d c %d k %d", n, c, k)
					require.InDelta(t, share/all, GPassAtK(n, c, k, tau), 1e-9, "n %d c %d k %d tau %v", n, c, k, tau)
				}
			}
		}
	}
}

func TestLargeCounts(t *testing.T) {
	require.InDelta(t, 1-math.Pow(0.9, 100), PassAtK(1_000_000, 100_000, 100), 1e-4)
	require.InDelta(t, 1.0, GPassAtK(100_000, 90_000, 1000, 0.5), 1e-6)
	require.Equal(t, 1.0, PassAtK(3, 3, 8))
	require.Equal(t, 0.0, PassAtK(3, 0, 8))
}

func TestMeanAtK(t *testing.T) {
	require.Equal(t, 0.0, MeanAtK([]float64{0, 0, 1}, 1))
	require.Equal(t, 0.5, MeanAtK([]float64{1, 0, 1}, 2))
	require.InDelta(t, 2.0/3, MeanAtK([]float64{1, 0, 1}, 8), 1e-12)
	require.Equal(t, 0.0, MeanAtK(nil, 2))
}

func TestMajAtK(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []string
		scores  []float64
		k       int
		want    float64
	}{
		{"no majority: the first", []string{"Paris", "London", "Berlin"}, []float64{1, 0, 0}, 3, 1},
		{"majority wrong", []string{"4", "5", "5"}, []float64{1, 0, 0}, 3, 0},
		{"majority right", []string{"5", "4", "4"}, []float64{0, 1, 1}, 3, 1},
		{"only the first k vote", []string{"5", "4", "4"}, []float64{0, 1, 1}, 1, 0},
		{"no answer does not vote", []string{"", "", "4"}, []float64{0, 0, 1}, 3, 1},
		{"none", []string{"", ""}, []float64{0, 0}, 2, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, MajAtK(row.answers, row.scores, row.k))
		})
	}
}
