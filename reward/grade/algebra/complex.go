package algebra

import (
	"math"
	"math/big"
	"math/cmplx"

	"github.com/easyrl/easyrl/internal/rounded"
)

// The functions of this file replace Go's complex operators and math/cmplx, whose results differ in the
// last places between machines. A score must not differ. They have no special cases for infinities, which
// no comparison accepts.

// times returns a·b.
func times(a, b complex128) complex128 {
	return complex(float64(real(a)*real(b))-float64(imag(a)*imag(b)), float64(real(a)*imag(b))+float64(imag(a)*real(b)))
}

// over returns a/b (Smith 1962, "Algorithm 116: complex division").
func over(a, b complex128) complex128 {
	switch c, d := real(b), imag(b); {
	case b == 0 && a != 0:
		return cmplx.Inf()
	case d == 0:
		return complex(real(a)/c, imag(a)/c)
	case math.Abs(c) >= math.Abs(d):
		ratio := d / c
		scale := c + float64(d*ratio)
		return complex((real(a)+float64(imag(a)*ratio))/scale, (imag(a)-float64(real(a)*ratio))/scale)
	default:
		ratio := c / d
		scale := d + float64(c*ratio)
		return complex((float64(real(a)*ratio)+imag(a))/scale, (float64(imag(a)*ratio)-real(a))/scale)
	}
}

// size returns |z|.
func size(z complex128) float64 {
	high, low := max(math.Abs(real(z)), math.Abs(imag(z))), min(math.Abs(real(z)), math.Abs(imag(z)))
	if low == 0 || math.IsInf(high, 0) {
		return high
	}
	low /= high
	return high * math.Sqrt(1+float64(low*low))
}

func argument(z complex128) float64 { return rounded.Atan2(imag(z), real(z)) }

// polar returns r·e^(iθ).
func polar(r, theta float64) complex128 {
	if theta == 0 {
		return complex(r, 0)
	}
	sin, cos := rounded.Sincos(theta)
	return complex(r*cos, r*sin)
}

func exponential(z complex128) complex128 { return polar(rounded.Exp(real(z)), imag(z)) }

func logarithm(z complex128) complex128 { return complex(rounded.Log(size(z)), argument(z)) }

// complexPower returns the principal value of base^exponent, for a base other than 0.
func complexPower(base, exponent complex128) complex128 {
	x, y := real(exponent), imag(exponent)
	r, theta := size(base), argument(base)
	length, angle := rounded.Pow(r, x), float64(x*theta)
	if y != 0 {
		length *= rounded.Exp(-y * theta)
		angle += float64(y * rounded.Log(r))
	}
	return polar(length, angle)
}

// hyperbolic returns the hyperbolic sine and cosine of x.
func hyperbolic(x float64) (sinh, cosh float64) {
	less, e := rounded.Expm1(math.Abs(x)), rounded.Exp(math.Abs(x))
	return math.Copysign((less+less/e)/2, x), (e + 1/e) / 2
}

func sine(z complex128) complex128 {
	sin, cos := rounded.Sincos(real(z))
	sinh, cosh := hyperbolic(imag(z))
	return complex(sin*cosh, cos*sinh)
}

func cosine(z complex128) complex128 {
	sin, cos := rounded.Sincos(real(z))
	sinh, cosh := hyperbolic(imag(z))
	return complex(cos*cosh, -sin*sinh)
}

func hyperbolicSine(z complex128) complex128 {
	sin, cos := rounded.Sincos(imag(z))
	sinh, cosh := hyperbolic(real(z))
	return complex(cos*sinh, sin*cosh)
}

func hyperbolicCosine(z complex128) complex128 {
	sin, cos := rounded.Sincos(imag(z))
	sinh, cosh := hyperbolic(real(z))
	return complex(cos*cosh, sin*sinh)
}

func hyperbolicTangent(z complex128) complex128 {
	if math.Abs(real(z)) > 22 { // 1 to the last place
		return complex(math.Copysign(1, real(z)), 0)
	}
	return over(hyperbolicSine(z), hyperbolicCosine(z))
}

// arcsine returns the inverse of sine, arccosine that of cosine: π/2 - arcsine.
func arcsine(z complex128) complex128 {
	if x := real(z); imag(z) == 0 && math.Abs(x) <= 1 {
		return complex(rounded.Atan2(x, math.Sqrt((1-x)*(1+x))), 0)
	}
	iz := complex(-imag(z), real(z))
	w := logarithm(iz + complexPower(1-times(z, z), 0.5))
	return complex(imag(w), -real(w)) // -i·log(i·z + √(1 - z²))
}

func arccosine(z complex128) complex128 {
	if x := real(z); imag(z) == 0 && math.Abs(x) <= 1 {
		return complex(rounded.Atan2(math.Sqrt((1-x)*(1+x)), x), 0)
	}
	return math.Pi/2 - arcsine(z)
}

func arctangent(z complex128) complex128 {
	if imag(z) == 0 {
		return complex(rounded.Atan2(real(z), 1), 0)
	}
	iz := complex(-imag(z), real(z))
	w := logarithm(1-iz) - logarithm(1+iz)
	return complex(-imag(w)/2, real(w)/2) // i/2·(log(1 - i·z) - log(1 + i·z))
}

// gamma returns Γ(x). At whole numbers it is rounded to nearest; elsewhere it is Stirling's series at
// x + n >= 20 divided by x·(x+1)···(x+n-1), with a relative error around 10^-14.
func gamma(x float64) float64 {
	switch {
	case x > 172:
		return math.Inf(1)
	case x == math.Trunc(x) && x > 0:
		v, _ := new(big.Float).SetInt(new(big.Int).MulRange(1, int64(x)-1)).Float64()
		return v
	case !(x > -1000) || x == math.Trunc(x):
		return math.NaN()
	case x < 0.5:
		return math.Pi / (rounded.Sin(math.Pi*(x-2*math.Floor(x/2))) * gamma(1-x))
	}
	product := 1.0
	for ; x < 20; x++ {
		product *= x
	}
	y := 1 / x
	square := float64(y * y)
	series := float64(square*(1.0/1260-float64(square*(1.0/1680)))) - 1.0/360
	series = float64(y * (1.0/12 + float64(square*series)))
	half := rounded.Pow(x, float64(x/2)-0.25) // its square would overflow
	return half * rounded.Exp(series-x) * half * math.Sqrt(2*math.Pi) / product
}
