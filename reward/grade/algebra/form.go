package algebra

import (
	"math"
	"math/big"
	"math/cmplx"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Elementary reports whether a formula in final form may contain the function of a variable that is called
// name.
func Elementary(name string) bool {
	const names expr.Names = `
		sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh log ln lg exp abs floor ceil
		factorial binom cup cap \`
	return names.Has(name)
}

// isSign reports whether n is the factor -1 that stands for a minus sign.
func isSign(n *expr.Node) bool { return n.Digits == "" && inverts(n.Value) }

// inverts reports whether r is -1, the exponent of a denominator.
func inverts(r *big.Rat) bool { return r != nil && r.Cmp(big.NewRat(-1, 1)) == 0 }

// exponent returns the rational exponent of a power, or nil.
func exponent(n *expr.Node) *big.Rat {
	if n.Kind != expr.Power {
		return nil
	}
	return rational(n.Args[1])
}

// isExpandable reports whether n is a whole power of a sum.
func isExpandable(n *expr.Node) bool {
	r := exponent(n)
	return r != nil && r.IsInt() && r.Sign() > 0 && n.Args[0].Kind == expr.Sum
}

// isPowerOfTen reports whether n is written as 10 with a whole exponent, as in scientific notation.
func isPowerOfTen(n *expr.Node) bool {
	return n.Kind == expr.Power && n.Args[0].Kind == expr.Number && n.Args[0].Digits == "10" &&
		n.Args[1].Kind == expr.Number && n.Args[1].Value.IsInt()
}

// rational returns the value of a number, a fraction of numbers or a negative one, or
// nil.
func rational(n *expr.Node) *big.Rat {
	switch n.Kind {
	case expr.Number:
		if n.Base != "" {
			return nil
		}
		return n.Value
	case expr.Product:
		total := big.NewRat(1, 1)
		for _, f := range flat(n, expr.Product) {
			r := rational(f)
			if r == nil {
				return nil
			}
			if total.Mul(total, r); isHuge(total) {
				return nil
			}
		}
		return total
	case expr.Power:
		base := rational(n.Args[0])
		if e := n.Args[1]; base != nil && base.Sign() != 0 && e.Kind == expr.Number && inverts(e.Value) {
			return new(big.Rat).Inv(base)
		}
	}
	return nil
}

// isHuge reports whether r is beyond the bound of exact arithmetic.
func isHuge(r *big.Rat) bool { return r.Num().BitLen()+r.Denom().BitLen() > maxBits }

// flat returns the arguments of nested sums or products.
func flat(n *expr.Node, kind expr.Kind) (all []*expr.Node) {
	if n.Kind != kind {
		return []*expr.Node{n}
	}
	for _, arg := range n.Args {
		all = append(all, flat(arg, kind)...)
	}
	return all
}

// factors returns the factors of a product. Those of its denominators have the exponent -1.
func factors(n *expr.Node) (all []*expr.Node) {
	for _, f := range flat(n, expr.Product) {
		if !inverts(exponent(f)) || f.Args[0].Kind != expr.Product {
			all = append(all, f)
			continue
		}
		for _, below := range flat(f.Args[0], expr.Product) {
			all = append(all, expr.Invert(below))
		}
	}
	return all
}

// coefficient splits a term into the sign of its rational factor and the key of the rest.
func coefficient(n *expr.Node) (int, string) {
	sign := 1
	var rest []string
	for _, f := range flat(n, expr.Product) {
		if r := rational(f); r != nil {
			sign *= r.Sign()
		} else {
			rest = append(rest, Key(f))
		}
	}
	slices.Sort(rest)
	return sign, strings.Join(rest, " ")
}

// Literal reports whether n is written as a number: an integer, a decimal, a fraction, a
// percentage or a number in scientific notation, with a sign and a unit.
func Literal(n *expr.Node) bool {
	for n.Kind == expr.Unit {
		n = n.Args[0]
	}
	whole, tens, below := 0, 0, 0
	for _, f := range flat(n, expr.Product) {
		switch {
		case f.Kind == expr.Number:
			if !isSign(f) {
				whole++
			}
		case isPowerOfTen(f):
			tens++
		case f.Kind == expr.Power && rational(f) != nil && f.Args[0].Kind == expr.Number:
			below++
		default:
			return false
		}
	}
	return whole <= 1 && tens <= 1 && below <= 1 && tens+below <= 1 && whole+tens > 0
}

// SameFunctions reports whether got calls no function that want does not.
func SameFunctions(want, got *expr.Node) bool {
	names := map[string]bool{}
	want.Has(func(n *expr.Node) bool {
		names[n.Name] = true
		return false
	})
	return !got.Has(func(n *expr.Node) bool { return n.Kind == expr.Call && !names[n.Name] })
}

// Exact reports whether two numbers are equal, not only up to rounding.
func Exact(a, b *expr.Node) bool {
	x, y := rational(a), rational(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

// Rounds reports whether b is the constant a, rounded to at least 3 significant digits, or to 2 if b has
// decimal places.
func Rounds(a, b *expr.Node) bool {
	d := literal(b)
	if d == nil || d.Figures < 2 || d.Places == 0 && d.Figures < 3 {
		return false
	}
	x, okA := Approximate(a)
	y, okB := Approximate(b)
	return okA && okB && math.Abs(x-y) <= rounding(d)
}

// Within reports whether the decimal b is the constant a, rounded.
func Within(a, b *expr.Node) bool {
	x, okA := Approximate(a)
	y, okB := Approximate(b)
	return okA && okB && math.Abs(x-y) <= rounding(b)
}

// Reduced reports whether the fraction n, if it is one, is in lowest terms and its roots
// have no square factor. Numbers beyond the bound of exact arithmetic count as reduced.
func Reduced(n *expr.Node) bool {
	if n.Kind == expr.Sum {
		return !slices.ContainsFunc(n.Args, func(term *expr.Node) bool { return !Reduced(term) })
	}
	num, den := big.NewInt(1), big.NewInt(1)
	for _, f := range flat(n, expr.Product) {
		switch {
		case f.Kind == expr.Number && f.Value.IsInt():
			num.Mul(num, f.Value.Num())
		case inverts(exponent(f)) && f.Args[0].Kind == expr.Number && f.Args[0].Value.IsInt():
			den.Mul(den, f.Args[0].Value.Num())
		case f.Kind == expr.Sum:
			if !Reduced(f) {
				return false
			}
		}
		if num.BitLen()+den.BitLen() > maxBits {
			return true
		}
	}
	if den.Sign() != 0 && num.Sign() != 0 && new(big.Int).GCD(
		nil, nil, new(big.Int).Abs(num), new(big.Int).Abs(den)).Cmp(big.NewInt(1)) != 0 {
		return false
	}
	return !n.Has(func(m *expr.Node) bool {
		r := exponent(m)
		return r != nil && r.Cmp(big.NewRat(1, 2)) == 0 && m.Args[0].Kind == expr.Number && m.Args[0].Value.IsInt() &&
			hasSquare(m.Args[0].Value.Num())
	})
}

// hasSquare reports whether the square of a small prime divides x.
func hasSquare(x *big.Int) bool {
	return x.Sign() != 0 && slices.ContainsFunc([]int64{4, 9, 25, 49, 121, 169, 289, 361}, func(q int64) bool {
		return new(big.Int).Mod(x, big.NewInt(q)).Sign() == 0
	})
}

// Squares returns the number of powers of sums in n.
func Squares(n *expr.Node) int {
	total := 0
	n.Has(func(m *expr.Node) bool {
		if isExpandable(m) {
			total++
		}
		return false
	})
	return total
}

// Mantissa returns the factor before the power of ten of a number in scientific notation. ok is false if n
// has no power of ten.
func Mantissa(n *expr.Node) (factor *big.Rat, ok bool) {
	factor = big.NewRat(1, 1)
	for _, f := range flat(n, expr.Product) {
		if isPowerOfTen(f) {
			ok = true
		} else if f.Kind == expr.Number && !isHuge(factor) {
			factor = new(big.Rat).Mul(factor, f.Value)
		}
	}
	return factor, ok
}

// Variables returns the number of different variables in n.
func Variables(n *expr.Node) int {
	seen := map[string]bool{}
	n.Has(func(m *expr.Node) bool {
		if m.Kind == expr.Symbol && isVariable(m) {
			seen[m.Name] = true
		}
		return false
	})
	return len(seen)
}

// Leaves returns the number of symbols and numbers in n. Signs and the exponent of a
// quotient do not count.
func Leaves(n *expr.Node) int {
	if len(n.Args) == 0 {
		if n.Kind == expr.Number && isSign(n) {
			return 0
		}
		return 1
	}
	total := 0
	for _, arg := range n.Args {
		total += Leaves(arg)
	}
	return total
}

// Factors returns the number of factors of n that have a variable, with multiplicity.
func Factors(n *expr.Node) int {
	total := 0
	for _, f := range flat(n, expr.Product) {
		times := 1
		if r := exponent(f); r != nil && r.IsInt() && r.Num().IsInt64() && r.Sign() > 0 {
			times = int(min(r.Num().Int64(), 1000))
			f = f.Args[0]
		}
		if f.Has(isVariable) {
			total += times
		}
	}
	return total
}

// Expanded reports whether no factor or base of a whole power in n is a sum.
func Expanded(n *expr.Node) bool {
	return !n.Has(func(m *expr.Node) bool {
		return isExpandable(m) || m.Kind == expr.Product &&
			slices.ContainsFunc(m.Args, func(f *expr.Node) bool { return f.Kind == expr.Sum })
	})
}

// Rationalized reports whether no denominator in n has a root.
func Rationalized(n *expr.Node) bool {
	root := func(m *expr.Node) bool {
		r := exponent(m)
		return r != nil && !r.IsInt()
	}
	return !n.Has(func(m *expr.Node) bool {
		r := exponent(m)
		return r != nil && r.Sign() < 0 && (m.Args[0].Has(root) || !r.IsInt())
	})
}

// Divides reports whether n has a sum with a variable in a denominator.
func Divides(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool {
		r := exponent(m)
		return r != nil && r.Sign() < 0 && m.Args[0].Kind == expr.Sum && m.Args[0].Has(isVariable)
	})
}

// Opaque reports whether n contains an integral, a sum, a limit, a derivative, a function
// that is not evaluated here, or a product of tuples.
func Opaque(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool {
		return m.Kind == expr.Call && !Elementary(m.Name) && m.Name != "sqrt" && m.Name != "prime" ||
			m.Kind == expr.Product && slices.ContainsFunc(m.Args,
				func(f *expr.Node) bool { return f.Kind == expr.Bracket })
	})
}

// Quotient returns a / b.
func Quotient(a, b *expr.Node) *expr.Node { return expr.Multiply(a, expr.Invert(b)) }

// Difference returns a - b.
func Difference(a, b *expr.Node) *expr.Node { return expr.Add(a, expr.Negate(b)) }

// Times returns n * num / den.
func Times(n *expr.Node, num, den int64) *expr.Node {
	return expr.Multiply(n, expr.Integer(num), expr.Invert(expr.Integer(den)))
}

// Approximate returns the value of a real constant and whether n is one.
func Approximate(n *expr.Node) (float64, bool) {
	if n.Has(isVariable) {
		return 0, false
	}
	p := &point{field: fields()[0], base: math.E}
	v := p.eval(n)
	return real(v), !cmplx.IsNaN(v) && !cmplx.IsInf(v) && math.Abs(imag(v)) <= 1e-9*max(1, math.Abs(real(v)))
}

// The bounds on matrix products: cells of a factor and nodes of the result.
const (
	maxCells = 64
	maxNodes = 4096
)

func cells(m *expr.Node) int {
	if len(m.Args) == 0 {
		return 0
	}
	for _, row := range m.Args {
		if len(row.Args) != len(m.Args[0].Args) {
			return 0
		}
	}
	return len(m.Args) * len(m.Args[0].Args)
}

// MatrixProduct returns a times b, or nil if their sizes do not match or are too large.
func MatrixProduct(a, b *expr.Node) *expr.Node {
	if n, m := cells(a), cells(b); n == 0 || m == 0 || n > maxCells || m > maxCells ||
		len(a.Args[0].Args) != len(b.Args) {
		return nil
	}
	out := &expr.Node{Kind: expr.Matrix}
	for _, row := range a.Args {
		r := &expr.Node{Kind: expr.List}
		for j := range b.Args[0].Args {
			var terms []*expr.Node
			for k, x := range row.Args {
				terms = append(terms, expr.Multiply(x, b.Args[k].Args[j]))
			}
			r.Args = append(r.Args, expr.Add(terms...))
		}
		out.Args = append(out.Args, r)
	}
	if out.Size() > maxNodes {
		return nil
	}
	return out
}

// Scaled multiplies each cell of m by the factors. It returns nil if m is too large.
func Scaled(m *expr.Node, factors []*expr.Node) *expr.Node {
	if len(factors) == 0 {
		return m
	}
	if n := cells(m); n == 0 || n > maxCells {
		return nil
	}
	times := func(x *expr.Node) *expr.Node { return expr.Multiply(append([]*expr.Node{x}, factors...)...) }
	return m.With(func(row *expr.Node) *expr.Node { return row.With(times) })
}
