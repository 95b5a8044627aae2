package exactsum

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// of returns the sum of terms.
func of(terms ...float64) Sum {
	var s Sum
	for _, v := range terms {
		s.Add(v)
	}
	return s
}

// Any order and any grouping of the terms gives the exact sum, rounded once.
func TestAnyOrderGivesTheExactSum(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		terms := make([]float64, 1+rng.IntN(60))
		exact := new(big.Rat)
		for i := range terms {
			terms[i] = math.Ldexp(rng.Float64()-0.5, rng.IntN(200)-100)
			if i > 0 && rng.IntN(3) == 0 {
				terms[i] = -terms[rng.IntN(i)] // cancels
			}
			exact.Add(exact, new(big.Rat).SetFloat64(terms[i]))
		}
		want, _ := exact.Float64()
		for range 5 {
			rng.Shuffle(len(terms), func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
			cut := rng.IntN(len(terms) + 1)
			s, rest := of(terms[:cut]...), of(terms[cut:]...)
			s.Merge(&rest)
			require.Equal(t, want, s.Float64(), "seed %d: %v", seed, terms)
		}
	}
}

// The variance of values far from 0 is as exact as that of others.
func TestVariance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n, centre, spread := 2+rng.IntN(9), math.Ldexp(rng.Float64(), rng.IntN(60)), math.Ldexp(1, rng.IntN(20)-10)
		var sum, squares Sum
		mean, want := new(big.Rat), new(big.Rat)
		var values []*big.Rat
		for range n {
			v := centre + spread*rng.NormFloat64()
			sum.Add(v)
			squares.AddSquare(v)
			values = append(values, new(big.Rat).SetFloat64(v))
			mean.Add(mean, values[len(values)-1])
		}
		mean.Quo(mean, big.NewRat(int64(n), 1))
		for _, v := range values {
			d := v.Sub(v, mean)
			want.Add(want, d.Mul(d, d))
		}
		exact, _ := want.Quo(want, big.NewRat(int64(n-1), 1)).Float64()
		require.Equal(t, exact, Variance(&sum, &squares, float64(n)), "seed %d", seed)
	}
	one, square := of(3), of(9)
	require.Zero(t, Variance(&one, &square, 1))
	var large Sum
	large.AddSquare(1e200)
	require.Equal(t, math.Inf(1), large.Float64())
	require.True(t, math.IsNaN(Variance(&one, &large, 2)))
}

func TestSpecialTerms(t *testing.T) {
	t.Parallel()
	var s Sum
	require.Zero(t, s.Float64())
	for _, c := range []struct {
		terms []float64
		want  float64
	}{
		{[]float64{1, math.Inf(1), -3}, math.Inf(1)},
		{[]float64{math.Inf(-1), 5}, math.Inf(-1)},
		{[]float64{1e308, 1e308, 1}, math.Inf(1)},
		{[]float64{-1e308, 2, -1e308}, math.Inf(-1)},
		{[]float64{1e16, 1, -1e16}, 1},
		{[]float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64}, math.SmallestNonzeroFloat64},
		{[]float64{1, math.Ldexp(1, -53)}, 1}, // a tie goes to even
		// and is none with one bit more
		{[]float64{1, math.Ldexp(1, -53), math.Ldexp(1, -1000)}, math.Nextafter(1, 2)},
		{[]float64{math.Nextafter(1, 2), math.Ldexp(1, -53)}, 1 + 2*(math.Nextafter(1, 2)-1)}, // upward
	} {
		s := of(c.terms...)
		require.Equal(t, c.want, s.Float64(), "%v", c.terms)
	}
	for _, terms := range [][]float64{{math.NaN(), 1}, {math.Inf(1), math.Inf(-1)}} {
		s := of(terms...)
		require.True(t, math.IsNaN(s.Float64()), "%v", terms)
	}
}
