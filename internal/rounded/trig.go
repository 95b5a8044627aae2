package rounded

import (
	"math"
	"math/big"
)

// Sin returns the sine of x radians.
func Sin(x float64) float64 {
	sin, _ := Sincos(x)
	return sin
}

// Cos returns the cosine of x radians.
func Cos(x float64) float64 {
	_, cos := Sincos(x)
	return cos
}

// Sincos returns the sine and the cosine of x radians.
func Sincos(x float64) (sin, cos float64) {
	size := math.Abs(x)
	switch {
	case !(size <= math.MaxFloat64): // infinite or NaN
		return math.NaN(), math.NaN()
	case size < 0x1p-27:
		return x, 1
	}
	if size < 0x1p22 {
		s, c := circle(size)
		sin, sinCertain := s.nearest(float64(0x1p-66 * math.Abs(s.high)))
		cos, cosCertain := c.nearest(float64(0x1p-66 * math.Abs(c.high)))
		if sinCertain && cosCertain {
			return math.Copysign(1, x) * sin, cos
		}
	}
	sin = settle(func(prec uint) *big.Float { s, _ := bigSincos(big.NewFloat(x), prec); return s })
	cos = settle(func(prec uint) *big.Float { _, c := bigSincos(big.NewFloat(x), prec); return c })
	return sin, cos
}

// circle returns the sine and the cosine of x, from 0 to 2^22, with relative errors below 2^-68.
func circle(x float64) (sin, cos double) {
	t := tables()
	k := math.RoundToEven(float64(x * (angleSteps / (2 * math.Pi))))
	p, q := twoProduct(k, t.turn[0]), twoProduct(k, t.turn[1])
	a := twoSum(x-p.high, -p.low) // the difference is exact
	b := twoSum(a.high, -q.high)
	r := twoSum(b.high, a.low+b.low-q.low-float64(k*t.turn[2]))

	h := r.high
	s := twoProduct(h, h)
	s.low += float64(2 * h * r.low)
	const sixth, sixthLow = 0x1.5555555555555p-3, 0x1.5555555555555p-57 // 1/6
	cube := twoProduct(h, s.high)
	cubic := twoProduct(cube.high, -sixth)
	cubic.low -= float64(cube.high*sixthLow) + float64((cube.low+float64(h*s.low))*sixth)
	f := math.FMA(s.high, 1.0/362880, -1.0/5040)
	f = math.FMA(s.high, f, 1.0/120)
	sine := twoSum(h, cubic.high)
	sine.low += r.low + cubic.low + float64(float64(cube.high*s.high)*f)
	g := math.FMA(s.high, 1.0/40320, -1.0/720)
	g = math.FMA(s.high, g, 1.0/24)
	cosine := double{float64(-s.high / 2), float64(float64(s.high*s.high)*g) - float64(s.low/2)} // less 1

	i := int(k) & (angleSteps - 1)
	return turned(t.sin[i], t.cos[i], sine, cosine), turned(t.cos[i], t.sin[i].minus(), sine, cosine)
}

func (d double) minus() double { return double{-d.high, -d.low} }

// turned returns a + a·cosine + b·sine. cosine is the cosine less 1.
func turned(a, b, sine, cosine double) double {
	u, v := twoProduct(b.high, sine.high), twoProduct(a.high, cosine.high)
	low := float64(b.high*sine.low) + float64(b.low*sine.high) + u.low +
		(float64(a.high*cosine.low) + float64(a.low*cosine.high) + v.low) + a.low
	c := twoSum(a.high, u.high)
	d := twoSum(c.high, v.high)
	return twoSum(d.high, d.low+(c.low+low))
}

// Atan2 returns the angle of the point (x, y) from -π to π, as math.Atan2 does.
func Atan2(y, x float64) float64 {
	switch {
	case x != x || y != y:
		return math.NaN()
	case y == 0 && (x > 0 || x == 0 && !math.Signbit(x)):
		return y
	case y == 0:
		return math.Copysign(math.Pi, y)
	case math.IsInf(x, 0) && math.IsInf(y, 0):
		if x > 0 {
			return math.Copysign(math.Pi/4, y)
		}
		return math.Copysign(3*math.Pi/4, y)
	case math.IsInf(x, 1):
		return math.Copysign(0, y)
	case math.IsInf(x, -1):
		return math.Copysign(math.Pi, y)
	case x == 0 || math.IsInf(y, 0):
		return math.Copysign(math.Pi/2, y)
	}
	angle := settle(func(prec uint) *big.Float {
		ratio := number(prec+64, math.Abs(y))
		a := bigAtan(ratio.Quo(ratio, number(prec+64, math.Abs(x))), prec+64)
		if x < 0 {
			a.Sub(bigPi(prec+64), a) // the precision of a
		}
		return a
	})
	return math.Copysign(angle, y)
}
