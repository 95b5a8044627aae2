package rounded

import (
	"math"
	"math/big"
)

// Arguments of the exponential function beyond which its result is trivial.
const (
	expOverflow  = 709.79  // above, e^x is infinite
	expUnderflow = -745.14 // below, e^x is 0
)

// Exp returns e^x, with the special cases of math.Exp.
func Exp(x float64) float64 {
	switch {
	case x != x || x > expOverflow:
		return x * math.Inf(1)
	case x < expUnderflow:
		return 0
	}
	if x > -708 && x < 709 { // a normal result
		d, k := expand(double{x, 0})
		if y, ok := d.nearest(float64(0x1p-70 * d.high)); ok {
			return math.Ldexp(y, k)
		}
	}
	return settle(func(prec uint) *big.Float { return bigExp(big.NewFloat(x), prec) })
}

// Expm1 returns e^x - 1, rounded to nearest also near 0.
func Expm1(x float64) float64 {
	const small = 0.005
	switch size := math.Abs(x); {
	case x != x || x > expOverflow:
		return x * math.Inf(1)
	case x < -40:
		return -1
	case size < 0x1p-54:
		return x
	case size < small:
		d := tail(double{x, 0})
		if y, ok := d.nearest(float64(0x1p-66 * size)); ok {
			return y
		}
	case x < 709:
		d, k := expand(double{x, 0})
		scale := math.Ldexp(1, k)
		s := twoSum(float64(d.high*scale), -1)
		s.low += float64(d.low * scale)
		if y, ok := s.nearest(float64(0x1p-69 * scale)); ok {
			return y
		}
	}
	return settle(func(prec uint) *big.Float {
		y := bigExp(big.NewFloat(x), prec+64) // x is at least 2^-54, so that at most 54 bits cancel
		return y.Sub(y, big.NewFloat(1))
	})
}

// expand returns e^x = d·2^k with d between 0.99 and 2.01, for x between -745 and 710. The relative
// error is below 2^-72.
func expand(x double) (d double, k int) {
	c := tables()
	steps := math.RoundToEven(float64(x.high * (expSteps / math.Ln2)))
	p := twoProduct(steps, c.expStep.low)
	r := twoSum(x.high-float64(steps*c.expStep.high), -p.high) // the first difference is exact
	r.low += x.low - p.low
	n := int(steps)
	t := c.power[n&(expSteps-1)]
	m := tail(r)
	product := twoProduct(t.high, m.high)
	s := twoSum(t.high, product.high)
	s.low += product.low + (t.low + float64(t.low*m.high) + float64(t.high*m.low))
	return s, n >> 6 // n / expSteps, rounded down
}

// tail returns e^r - 1 for |r| < 2^-7.5. The error is below 2^-68 |r|.
func tail(r double) double {
	h := r.high
	q := math.FMA(h, 1.0/40320, 1.0/5040)
	q = math.FMA(h, q, 1.0/720)
	q = math.FMA(h, q, 1.0/120)
	q = math.FMA(h, q, 1.0/24)
	q = math.FMA(h, q, 1.0/6)
	s := twoProduct(h, h)
	d := twoSum(h, float64(s.high/2))
	d.low += r.low + (float64(s.low/2) + float64(h*r.low)) + float64(float64(h*s.high)*q)
	return d
}
