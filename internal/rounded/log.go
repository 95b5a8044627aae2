package rounded

import (
	"math"
	"math/big"
)

// Log returns the natural logarithm of x, with the special cases of math.Log.
func Log(x float64) float64 {
	switch {
	case x != x || x > math.MaxFloat64:
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x == 1:
		return 0
	}
	d := logarithm(x)
	if y, ok := d.nearest(float64(0x1p-68 * math.Abs(d.high))); ok {
		return y
	}
	return settle(func(prec uint) *big.Float { return bigLog(big.NewFloat(x), prec) })
}

// logarithm returns log(x) with a relative error below 2^-72.
func logarithm(x float64) double {
	c := tables()
	m, exponent := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		exponent--
	}
	e := float64(exponent)
	i := int(float64(m*logSteps)) - logSteps/2
	p := twoProduct(m, c.inverse[i])
	h, l := p.high-1, p.low // the difference is exact
	q := math.FMA(h, 1.0/11, -1.0/10)
	q = math.FMA(h, q, 1.0/9)
	q = math.FMA(h, q, -1.0/8)
	q = math.FMA(h, q, 1.0/7)
	q = math.FMA(h, q, -1.0/6)
	q = math.FMA(h, q, 1.0/5)
	q = math.FMA(h, q, -1.0/4)
	const third, thirdLow = 0x1.5555555555555p-2, 0x1.5555555555555p-56 // 1/3
	s := twoProduct(h, h)
	cube := twoProduct(h, s.high)
	cubic := twoProduct(cube.high, third)
	cubic.low += float64(cube.high*thirdLow) + float64((cube.low+float64(h*s.low))*third)
	low := l/(1+h) + c.minusLog[i].low + float64(e*c.ln2.low) - float64(s.low/2) + cubic.low +
		float64(float64(cube.high*h)*q)
	a := twoSum(float64(e*c.ln2.high), c.minusLog[i].high)
	b := twoSum(a.high, h)
	d := twoSum(b.high, float64(-s.high/2))
	f := twoSum(d.high, cubic.high)
	return twoSum(f.high, f.low+(d.low+(a.low+b.low+low)))
}
