package rounded

import (
	"math"
	"math/big"
	"sync"
)

// The functions of this file take a precision in bits and return values with a relative error below
// 2^(8-prec). Their arguments are exact or have at most such an error.

// tiePrec is the precision in bits above which settle takes a value that it cannot distinguish from the
// middle of two float64 to be that middle.
const tiePrec = 1000

// settle returns the value of f rounded to nearest. It doubles the precision until all values within the
// error of f round to the same float64.
func settle(f func(prec uint) *big.Float) float64 {
	for prec := uint(128); ; prec *= 2 {
		y := f(prec)
		if prec > tiePrec {
			y.SetPrec(prec / 2)
		}
		margin := new(big.Float).SetMantExp(y, 16-int(prec))
		low, _ := new(big.Float).Sub(y, margin).Float64()
		high, _ := new(big.Float).Add(y, margin).Float64()
		if low == high || prec > tiePrec {
			v, _ := y.Float64()
			return v
		}
	}
}

// number returns x, rounded to prec bits.
func number(prec uint, x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// series returns z + s·z³/3 + z⁵/5 + s·z⁷/7 + …: atanh(z) if s is 1, atan(z) if it is -1.
func series(z *big.Float, s int64, prec uint) *big.Float {
	square := new(big.Float).SetPrec(prec).Mul(z, z)
	square.Mul(square, number(prec, float64(s)))
	sum := new(big.Float).SetPrec(prec).Set(z)
	power := new(big.Float).SetPrec(prec).Set(z)
	term := new(big.Float).SetPrec(prec)
	for i := 3; ; i += 2 {
		power.Mul(power, square)
		term.Quo(power, number(prec, float64(i)))
		if negligible(term, sum, prec) {
			return sum
		}
		sum.Add(sum, term)
	}
}

// negligible reports whether term is 0 or below 2^-prec times sum.
func negligible(term, sum *big.Float, prec uint) bool {
	return term.Sign() == 0 || term.MantExp(nil) < sum.MantExp(nil)-int(prec)
}

// commonPrec is the precision in bits of the constants that are computed only once.
const commonPrec = 512

var (
	commonLn2 = sync.OnceValue(func() *big.Float { return newLn2(commonPrec) })
	commonPi  = sync.OnceValue(func() *big.Float { return newPi(commonPrec) })
)

// bigLn2 returns log(2). Callers share the result and must not change it.
func bigLn2(prec uint) *big.Float {
	if prec <= commonPrec {
		return commonLn2()
	}
	return newLn2(prec)
}

// bigPi returns π. Callers share the result and must not change it.
func bigPi(prec uint) *big.Float {
	if prec <= commonPrec {
		return commonPi()
	}
	return newPi(prec)
}

// newLn2 returns log(2) = 2·atanh(1/3).
func newLn2(prec uint) *big.Float {
	l := series(inverse(3, prec+32), 1, prec+32)
	return l.SetMantExp(l, 1)
}

// newPi returns π = 16·atan(1/5) - 4·atan(1/239) (Machin).
func newPi(prec uint) *big.Float {
	a, b := series(inverse(5, prec+32), -1, prec+32), series(inverse(239, prec+32), -1, prec+32)
	return a.Sub(a.SetMantExp(a, 4), b.SetMantExp(b, 2))
}

// inverse returns 1/x.
func inverse(x float64, prec uint) *big.Float {
	return number(prec, 1).Quo(number(prec, 1), number(prec, x))
}

// bigExp returns e^x. The exponent of the result must fit into 20 bits.
func bigExp(x *big.Float, prec uint) *big.Float {
	const halvings = 8
	prec += 64
	ln2 := bigLn2(prec)
	turns, _ := new(big.Float).Quo(x, ln2).Float64()
	k := math.RoundToEven(turns)
	r := number(prec, k)
	r.Sub(x, r.Mul(r, ln2))
	r.SetMantExp(r, -halvings)
	sum, term := number(prec, 1), number(prec, 1)
	for i := 1; ; i++ {
		term.Quo(term.Mul(term, r), number(prec, float64(i)))
		if negligible(term, sum, prec) {
			break
		}
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum.SetMantExp(sum, int(k))
}

// bigLog returns log(x) for an x above 0: log(m·2^e) = 2·atanh((m-1)/(m+1)) + e·log(2).
func bigLog(x *big.Float, prec uint) *big.Float {
	prec += 64
	m := new(big.Float)
	e := x.MantExp(m)
	m.SetPrec(max(prec, x.Prec()+1))
	if m.Cmp(big.NewFloat(math.Sqrt2/2)) < 0 {
		m.SetMantExp(m, 1)
		e--
	}
	one := number(prec, 1)
	z := new(big.Float).SetPrec(m.Prec()).Sub(m, one)
	z.SetPrec(prec).Quo(z, m.Add(m, one))
	l := series(z, 1, prec)
	l.SetMantExp(l, 1)
	whole := number(prec, float64(e))
	return l.Add(l, whole.Mul(whole, bigLn2(prec)))
}

// bigSincos returns the sine and the cosine of x. x may be so close to a multiple of π/2 that 128 bits
// cancel.
func bigSincos(x *big.Float, prec uint) (sin, cos *big.Float) {
	prec += 192 + uint(max(0, x.MantExp(nil)))
	right := new(big.Float).SetMantExp(bigPi(prec), -1)
	quarters := new(big.Float).SetPrec(prec).Quo(x, right)
	k, _ := quarters.Add(quarters, big.NewFloat(math.Copysign(0.5, float64(x.Sign())))).Int(nil) // to nearest
	r := new(big.Float).SetPrec(prec).SetInt(k)
	r.Sub(x, r.Mul(r, right))

	sin, cos = number(prec, 0), number(prec, 0)
	term := number(prec, 1)
	for i := 1; ; i++ { // r^(i-1)/(i-1)!, with the signs of both series
		sum := cos
		if i%2 == 0 {
			sum = sin
		}
		if i > 2 && negligible(term, sum, prec) {
			break
		}
		if (i-1)%4 < 2 {
			sum.Add(sum, term)
		} else {
			sum.Sub(sum, term)
		}
		term.Quo(term.Mul(term, r), number(prec, float64(i)))
	}
	switch new(big.Int).And(k, big.NewInt(3)).Int64() {
	case 1:
		return cos, sin.Neg(sin)
	case 2:
		return sin.Neg(sin), cos.Neg(cos)
	case 3:
		return cos.Neg(cos), sin
	}
	return sin, cos
}

// bigAtan returns the arc tangent of an x that is not negative.
func bigAtan(x *big.Float, prec uint) *big.Float {
	const halvings = 4
	prec += 64
	one := number(prec, 1)
	large := x.Cmp(one) > 0
	z := new(big.Float).SetPrec(prec).Set(x)
	if large { // atan(x) = π/2 - atan(1/x)
		z.Quo(one, z)
	}
	for range halvings { // atan(z) = 2·atan(z/(1 + √(1 + z²)))
		root := new(big.Float).SetPrec(prec).Mul(z, z)
		root.Add(one, root.Sqrt(root.Add(one, root)))
		z.Quo(z, root)
	}
	a := series(z, -1, prec)
	a.SetMantExp(a, halvings)
	if large {
		return a.Sub(new(big.Float).SetMantExp(bigPi(prec), -1), a)
	}
	return a
}
