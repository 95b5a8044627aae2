package rounded

import (
	"math"
	"math/big"
)

// Pow returns x^y, with the special cases of math.Pow. Some results take a hundred times as long as
// others: up to one in 30 of those beyond e^±100, and those in the middle of two float64.
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
	l := logarithm(x)
	p := twoProduct(l.high, y)
	p.low += float64(l.low * y)
	switch {
	case p.high > expOverflow+1:
		return math.Inf(1)
	case p.high < expUnderflow-1:
		return 0
	}
	if size := math.Abs(p.high); size > 0x1p-900 && size < 700 { // neither a subnormal product nor a subnormal result
		d, k := expand(p)
		if v, ok := d.nearest(float64(d.high * (0x1p-70 + float64(size*0x1p-68)))); ok {
			return math.Ldexp(v, k)
		}
	}
	return settle(func(prec uint) *big.Float {
		l := bigLog(big.NewFloat(x), prec+192)
		return bigExp(l.Mul(l, big.NewFloat(y)), prec)
	})
}
