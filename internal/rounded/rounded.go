// Package rounded computes elementary functions of float64 rounded to nearest, so that their bits are
// equal on every machine. Those of package math are not: some machines have assembly for them, and on
// some the compiler fuses their products and sums.
//
// A function first evaluates a sum of two float64 whose relative error is below 2^-66. If every value
// within that error rounds to one float64, that is the result. Otherwise, at most once in about 4,000
// calls, it evaluates again in arithmetic of math/big, with 128 bits, then with twice as many, until the
// rounding is certain. Results are therefore correctly rounded as long as the bounds of the errors
// hold. The tests compare the first evaluation with 128 bits, on hard and on random arguments, and
// require errors below a quarter of each bound. A result of Pow within 2^-1000 of the middle of two
// float64 is taken to be that middle.
//
// Every product is rounded by a conversion or is part of a math.FMA, so no compiler may fuse it with a
// sum. The functions may be called concurrently.
package rounded

import "math"

// double is the unevaluated sum of two float64. low is small compared with high.
type double struct{ high, low float64 }

// twoSum returns a + b without error (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
func twoSum(a, b float64) double {
	s := a + b
	t := s - a
	return double{s, (a - (s - t)) + (b - t)}
}

// twoProduct returns a·b without error, if the product is not subnormal.
func twoProduct(a, b float64) double {
	p := float64(a * b)
	return double{p, math.FMA(a, b, -p)}
}

// nearest rounds d to nearest and reports whether all values within margin of d round to the same
// float64.
func (d double) nearest(margin float64) (float64, bool) {
	below := d.high + (d.low - margin)
	above := d.high + (d.low + margin)
	return below, below == above
}
