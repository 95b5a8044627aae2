// Package exactsum adds float64 values without rounding, so that a sum does not depend on
// the order of its terms.
package exactsum

import "math/big"

// Sum is an exact sum of float64 values. The zero value is 0. It represents the sum as a
// list of values whose bits do not overlap, smallest first (Shewchuk 1997, "Adaptive
// precision floating-point arithmetic", section 2.4). It is not safe for concurrent use. Only one
// copy of a Sum may be added to.
type Sum struct {
	parts   []float64
	special float64 // sum of the terms that are not finite
}

// Of returns the sum of terms.
func Of(terms ...float64) Sum {
	var s Sum
	for _, v := range terms {
		s.Add(v)
	}
	return s
}

// Add adds a term. Once finite terms add up to more than float64 can hold, the sum is infinite.
func (s *Sum) Add(v float64) {
	if v-v != 0 {
		s.special += v
		return
	}
	kept := s.parts[:0]
	for _, part := range s.parts {
		high := v + part
		if high-high != 0 {
			s.special, s.parts = s.special+high, nil
			return
		}
		rest := high - v // what high has of part
		low := (v - (high - rest)) + (part - rest)
		if low != 0 {
			kept = append(kept, low)
		}
		v = high
	}
	s.parts = append(kept, v)
}

// Merge adds the terms of o.
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
	const bits = 2200 // from the largest to the smallest bit of a float64, and carries
	total := new(big.Float).SetPrec(bits)
	for _, part := range s.parts {
		total.Add(total, big.NewFloat(part))
	}
	v, _ := total.Float64()
	return v
}
