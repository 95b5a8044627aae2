package algebra

import (
	"math"
	"math/cmplx"
	"strconv"

	"github.com/easyrl/easyrl/internal/rounded"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// point evaluates an expression in complex numbers, with a fixed value for each symbol.
type point struct {
	seed     uint64
	field    field                  // for values of symbols
	base     float64                // of a logarithm that does not say its base
	negative func(name string) bool // nil if all variables are positive
	far      bool                   // negative values are far from 0
}

// eval returns the value of n at the point.
func (p *point) eval(n *expr.Node) complex128 {
	switch n.Kind {
	case expr.Number:
		if n.Base != "" {
			return p.random("base " + n.Base + " " + n.Digits)
		}
		v, _ := n.Value.Float64()
		return complex(v, 0)
	case expr.Symbol:
		return p.symbol(n.Name)
	case expr.Sum:
		total := complex128(0)
		for _, arg := range n.Args {
			total += p.eval(arg)
		}
		return total
	case expr.Product:
		total := complex128(1)
		for _, arg := range n.Args {
			total = times(total, p.eval(arg))
		}
		return total
	case expr.Power:
		return raise(p.eval(n.Args[0]), p.eval(n.Args[1]))
	case expr.Unit, expr.Label:
		v := p.eval(n.Args[0])
		if n.Name == "%" {
			v = over(v, 100)
		}
		return v
	case expr.Call:
		return p.call(n)
	}
	return p.opaque(n, p.values(n.Args))
}

// values returns the values of args at the point.
func (p *point) values(args []*expr.Node) []complex128 {
	all := make([]complex128, len(args))
	for i, arg := range args {
		all[i] = p.eval(arg)
	}
	return all
}

// symbol returns the value of a constant, or the value that the point gives to a variable.
func (p *point) symbol(name string) complex128 {
	switch name {
	case "pi":
		return math.Pi
	case "e":
		return math.E
	case "i":
		return 1i
	}
	if p.negative != nil && p.negative(name) {
		if p.far {
			return times(-23, p.random(name))
		}
		return -p.random(name)
	}
	return p.random(name)
}

// random returns a value between 1/2 and 5/2 that depends on name and the point.
func (p *point) random(name string) complex128 {
	v := p.field.hash(name, p.seed)
	return complex(0.5+2*float64(v)/float64(p.field.prime), 0)
}

// raise returns base to the exponent. It returns NaN if base is infinite or the power underflows: 1/2004!
// is not 0.
func raise(base, exponent complex128) complex128 {
	v := power(base, exponent)
	if cmplx.IsInf(base) || v == 0 && base != 0 {
		return cmplx.NaN()
	}
	return v
}

// power returns the principal value of base to the exponent, or the real root of a negative base if the
// exponent has an odd denominator below 10.
func power(base, exponent complex128) complex128 {
	if imag(base) == 0 && imag(exponent) == 0 {
		b, x := real(base), real(exponent)
		if b >= 0 || x == math.Trunc(x) {
			return complex(rounded.Pow(b, x), 0)
		}
		for odd := 3.0; odd < 10; odd += 2 { // a real root
			if above := math.Round(odd * x); math.Abs(float64(odd*x)-above) < 1e-14 {
				sign := 1.0
				if math.Mod(above, 2) != 0 {
					sign = -1
				}
				return complex(sign*rounded.Pow(-b, x), 0)
			}
		}
	}
	return complexPower(base, exponent)
}

// angle returns the value of n, the argument of a trigonometric function, in radians.
func (p *point) angle(n *expr.Node) complex128 {
	v := p.eval(n)
	if n.Has(func(m *expr.Node) bool { return m.Kind == expr.Unit && m.Name == "deg" }) {
		v = times(v, math.Pi/180)
	}
	return v
}

// call returns the value of a function. A function that it does not know gets an opaque value.
func (p *point) call(n *expr.Node) complex128 {
	if len(n.Args) == 0 {
		return p.opaque(n, nil)
	}
	if v, ok := trigonometric(n.Name, p, n.Args[0]); ok {
		return v
	}
	values := p.values(n.Args)
	switch v := values[0]; {
	case n.Name == "log" && len(n.Args) == 2:
		return over(logarithm(v), logarithm(values[1]))
	case n.Name == "log":
		return over(logarithm(v), complex(rounded.Log(p.base), 0))
	case n.Name == "ln":
		return logarithm(v)
	case n.Name == "lg":
		return over(logarithm(v), math.Ln10)
	case n.Name == "conj":
		return cmplx.Conj(v)
	case n.Name == "exp":
		return exponential(v)
	case n.Name == "abs" || n.Name == "norm":
		return complex(size(v), 0)
	case n.Name == "floor" && imag(v) == 0:
		return complex(math.Floor(real(v)+1e-12), 0)
	case n.Name == "ceil" && imag(v) == 0:
		return complex(math.Ceil(real(v)-1e-12), 0)
	case n.Name == "factorial" && imag(v) == 0:
		return complex(gamma(real(v)+1), 0)
	case n.Name == "binom" && len(n.Args) == 2:
		k := values[1]
		return complex(gamma(real(v)+1)/gamma(real(k)+1)/gamma(real(v)-real(k)+1), 0)
	}
	return p.opaque(n, values)
}

// trigonometric returns the value of a trigonometric or hyperbolic function, an inverse of one, or cis. It
// returns false for other functions.
func trigonometric(name string, p *point, arg *expr.Node) (complex128, bool) {
	switch name {
	case "sin":
		return sine(p.angle(arg)), true
	case "cos":
		return cosine(p.angle(arg)), true
	case "tan":
		a := p.angle(arg)
		return over(sine(a), cosine(a)), true
	case "cot":
		a := p.angle(arg)
		return over(cosine(a), sine(a)), true
	case "sec":
		return over(1, cosine(p.angle(arg))), true
	case "csc":
		return over(1, sine(p.angle(arg))), true
	case "arcsin", "asin":
		return arcsine(p.eval(arg)), true
	case "arccos", "acos":
		return arccosine(p.eval(arg)), true
	case "arctan", "atan":
		return arctangent(p.eval(arg)), true
	case "sinh":
		return hyperbolicSine(p.eval(arg)), true
	case "cosh":
		return hyperbolicCosine(p.eval(arg)), true
	case "tanh":
		return hyperbolicTangent(p.eval(arg)), true
	case "cis":
		return exponential(times(1i, p.angle(arg))), true
	}
	return 0, false
}

// opaque returns a value that depends on n's name and its arguments' values.
func (p *point) opaque(n *expr.Node, values []complex128) complex128 {
	name := []byte("opaque " + n.Name + n.Open + n.Base)
	for _, v := range values {
		name = strconv.AppendFloat(append(name, ' '), real(v), 'e', 8, 64)
		name = strconv.AppendFloat(append(name, ' '), imag(v), 'e', 8, 64)
	}
	return p.random(string(name))
}
