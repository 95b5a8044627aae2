// Package exactsum adds float64 values without rounding, so that a sum does not depend on
// the order of its terms.
package exactsum

import (
	"math"
	"math/big"
)

// Sum is an exact sum of float64 values. The zero value is 0. It represents the sum as a
// list of values whose bits do not overlap, smallest first (Shewchuk 1997, "Adaptive
// precision floating-point arithmetic", section 2.4). It is not safe for concurrent use. Copies
// share memory, so only one of them may be added to.
type Sum struct {
	parts   []float64
	special float64 // sum of the terms that are not finite
}

// Add adds a term. If a partial sum of finite terms overflows, the sum becomes infinite.
func (s *Sum) Add(v float64) {
	if !finite(v) {
		s.special += v
		return
	}
	kept := s.parts[:0]
	for _, part := range s.parts {
		high := v + part
		if !finite(high) {
			s.special, s.parts = s.special+high, nil
			return
		}
		rest := high - v // the portion of part that high includes
		low := (v - (high - rest)) + (part - rest)
		if low != 0 {
			kept = append(kept, low)
		}
		v = high
	}
	s.parts = append(kept, v)
}

// finite reports whether v is neither infinite nor NaN.
func finite(v float64) bool { return v-v == 0 }

// AddSquare adds the square of v, exactly unless it overflows or underflows.
func (s *Sum) AddSquare(v float64) {
	high := float64(v * v)
	s.Add(high)
	if finite(high) {
		s.Add(math.FMA(v, v, -high)) // the rounding error of high
	}
}

// Merge adds the terms of o, which stays the same.
func (s *Sum) Merge(o *Sum) {
	s.special += o.special
	for _, part := range o.parts {
		s.Add(part)
	}
}

// Float64 returns the sum, rounded once to the nearest float64. It is NaN or infinite if a
// term is.
func (s *Sum) Float64() float64 {
	if s.special != 0 { // also if it is NaN
		return s.special
	}
	v, _ := s.exact().Float64()
	return v
}

// bits is a precision that holds any exact sum: 2,098 bits from the largest to the smallest of
// a float64, and carries.
const bits = 2200

// exact returns the sum of the finite terms.
func (s *Sum) exact() *big.Float {
	total := new(big.Float).SetPrec(bits)
	for _, part := range s.parts {
		total.Add(total, big.NewFloat(part))
	}
	return total
}

// Variance returns the unbiased variance of n values from their sum and the sum of their
// squares. It is 0 for fewer than two values and NaN if a sum is not finite.
func Variance(sum, squares *Sum, n float64) float64 {
	if sum.special != 0 || squares.special != 0 {
		return math.NaN()
	}
	if n < 2 {
		return 0
	}
	wide := func() *big.Float { return new(big.Float).SetPrec(2*bits + 64) }
	total := sum.exact()
	spread := wide().Mul(wide().SetFloat64(n), squares.exact()) // n·Σv² - (Σv)²
	spread.Sub(spread, wide().Mul(total, total))
	v, _ := spread.Quo(spread, wide().SetFloat64(float64(n*(n-1)))).Float64()
	return max(0, v)
}
