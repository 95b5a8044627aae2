package rounded

import (
	"math"
	"math/big"
)

// Pow returns x^y, with the special cases of math.Pow. It takes about 100 µs.
func Pow(x, y float64) float64 {
	whole := y == math.Trunc(y)
	odd := whole && math.Mod(y, 2) != 0 // false if y is infinite
	switch size := math.Abs(x); {
	case y == 0 || x == 1:
		return 1
	case x != x || y != y:
		return math.NaN()
	case math.IsInf(y, 0):
		if size == 1 {
			return 1
		}
		if (size > 1) == (y > 0) {
			return math.Inf(1)
		}
		return 0
	case x == 0 || math.IsInf(x, 0):
		sign := 1.0
		if odd {
			sign = math.Copysign(1, x)
		}
		if (x == 0) == (y > 0) {
			return math.Copysign(0, sign)
		}
		return math.Copysign(math.Inf(1), sign)
	case x < 0 && !whole:
		return math.NaN()
	case x < 0 && odd:
		return -power(size, y)
	default:
		return power(size, y)
	}
}

// power is Pow for finite arguments and x above 0.
func power(x, y float64) float64 {
	if x == 1 {
		return 1
	}
	switch estimate := float64(logarithm(x).high * y); {
	case estimate > expOverflow+1:
		return math.Inf(1)
	case estimate < expUnderflow-1:
		return 0
	}
	return settle(func(prec uint) *big.Float {
		l := bigLog(big.NewFloat(x), prec+192)
		return bigExp(l.Mul(l, big.NewFloat(y)), prec)
	})
}
