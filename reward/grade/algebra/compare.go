// Package algebra decides whether two expressions have the same value: exactly for
// rational numbers and rational functions, numerically at several points for the rest.
//
// Every step is bounded for any exponent: an expression too large to compute equals
// only one written the same way.
package algebra

import (
	"math"
	"math/big"
	"math/cmplx"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Comparer compares expressions. It caches results and bounds its work: past the bound,
// it treats numbers as not known exactly. It is not safe for concurrent use.
type Comparer struct {
	exact    exact
	facts    map[*expr.Node]*facts
	positive func(name string) bool
}

// NewComparer returns a Comparer with an empty cache. positive reports whether a variable is
// known to be positive; nil means that none is.
func NewComparer(positive func(name string) bool) *Comparer {
	return &Comparer{facts: map[*expr.Node]*facts{}, positive: positive}
}

// facts holds what is known about an expression.
type facts struct {
	residues [2]uint64
	known    bool             // residues are valid
	opaque   bool             // residues do not determine the value
	rational *big.Rat         // nil if not rational or not known
	decimal  bool             // has a decimal
	variable bool             // see isVariable
	log      bool             // has a logarithm without a base
	points   [2][3]complex128 // values by the base of such a logarithm (bases) and the point
}

// of returns the facts about n and caches them.
func (c *Comparer) of(n *expr.Node) *facts {
	if f, ok := c.facts[n]; ok {
		return f
	}
	f := &facts{known: true, rational: c.exact.eval(n), decimal: decimal(n), variable: n.Has(isVariable),
		log: n.Has(isLog)}
	for i, field := range fields() {
		field.exact = &c.exact
		v, ok := field.eval(n)
		f.residues[i], f.known, f.opaque = v, f.known && ok, f.opaque || field.opaque
	}
	for i, base := range bases() {
		for seed := range f.points[i] {
			p := &point{seed: uint64(seed), field: fields()[0], base: base}
			f.points[i][seed] = p.eval(n)
		}
	}
	c.facts[n] = f
	return f
}

// Rational returns the value of n if n is a rational number within the bounds.
func (c *Comparer) Rational(n *expr.Node) (*big.Rat, bool) {
	r := c.of(n).rational
	return r, r != nil
}

// Same reports whether got, from a response, has the value of want. Exact expressions
// must agree exactly. A decimal may replace a number without a finite decimal expansion
// if it is rounded correctly to at least 6 digits.
func (c *Comparer) Same(want, got *expr.Node) bool {
	w, g := c.of(want), c.of(got)
	if w.known && g.known {
		if w.residues == g.residues {
			return true
		}
		if !w.opaque && !g.opaque && !w.decimal && !g.decimal {
			return false
		}
	}
	for i := range w.points {
		if near(want, got, w, g, i) {
			return !w.variable && !g.variable || c.signed(want, got, w, g, i)
		}
		if !w.log && !g.log { // the base of the logarithm does not matter
			break
		}
	}
	return false
}

// bases returns the bases that a logarithm may have that does not say its base.
func bases() [2]float64 { return [2]float64{math.E, 10} }

// signs is the number of points that signed visits. At points 0 and 4 all variables are negative; at each
// other point a hash picks those that are. Points 4 and 5 lie far from zero.
const signs = 6

// signed compares the values where variables are negative, so that |x| is not x. It skips a point where
// want is not real, as x^{1/2} is for a negative x: there, got may have any value.
func (c *Comparer) signed(want, got *expr.Node, w, g *facts, base int) bool {
	for k := range signs {
		p := &point{seed: uint64(k + 3), far: k > 3, field: fields()[0], base: bases()[base],
			negative: func(name string) bool {
				if c.positive != nil && c.positive(name) {
					return false
				}
				bit := fields()[0]
				return k%4 == 0 || (bit.hash(name, uint64(k/3+1))>>7)&1 == uint64(k%2)
			}}
		a := p.eval(want)
		if cmplx.IsNaN(a) || cmplx.IsInf(a) || math.Abs(imag(a)) > 1e-9*max(1, math.Abs(real(a))) {
			continue
		}
		b := p.eval(got)
		if cmplx.IsNaN(b) || cmplx.IsInf(b) || !agree(want, got, w, g, size(a-b), max(size(a), size(b))) {
			return false
		}
	}
	return true
}

// near compares the values at all points.
func near(want, got *expr.Node, w, g *facts, base int) bool {
	for seed := range w.points[base] {
		a, b := w.points[base][seed], g.points[base][seed]
		if cmplx.IsNaN(a) || cmplx.IsNaN(b) || cmplx.IsInf(a) || cmplx.IsInf(b) ||
			!agree(want, got, w, g, size(a-b), max(size(a), size(b))) {
			return false
		}
	}
	return true
}

// agree reports whether values of this size and distance are equal within the precision
// of their written forms.
func agree(want, got *expr.Node, w, g *facts, distance, size float64) bool {
	decimals := w.decimal || g.decimal
	if w.rational != nil && g.rational != nil && terminates(w.rational) && terminates(g.rational) &&
		w.rational.Cmp(g.rational) != 0 {
		return false // 24.0000000000001 is not 24
	}
	if distance <= 1e-10*size {
		// Rational numbers differ if their residues do.
		return decimals || w.rational == nil || g.rational == nil || w.rational.Cmp(g.rational) == 0
	}
	whole := w.rational != nil && w.rational.IsInt()
	a, b := literal(want), literal(got)
	switch {
	case w.variable || g.variable || a == nil && b == nil:
		return decimals && distance <= 1e-6*size && !whole
	case a != nil && b != nil:
		return a.Figures >= 6 && b.Figures >= 6 && distance <= max(rounding(a), rounding(b))
	case b != nil:
		return !whole && b.Figures >= 6 && distance <= rounding(b)
	}
	return a.Figures >= 4 && !terminates(g.rational) && distance <= rounding(a)
}

// Proportional reports whether a is a constant times b, and the sign of that constant.
// Neither a nor b may be zero.
func (c *Comparer) Proportional(a, b *expr.Node) (sign int, ok bool) {
	var ratio uint64
	f := fields()[0]
	f.exact = &c.exact
	for i, suffix := range []string{"", " 1", " 2"} { // other names have other values
		renamed := func(n *expr.Node) *expr.Node {
			if n.IsVariable() {
				return expr.Named(n.Name + suffix)
			}
			return n
		}
		x, okX := f.eval(a.Replaced(renamed))
		y, okY := f.eval(b.Replaced(renamed))
		if !okX || !okY || x == 0 || y == 0 {
			return 0, false
		}
		q := f.mul(x, f.pow(y, f.prime-2))
		if i > 0 && q != ratio {
			return 0, false
		}
		ratio = q
	}
	p := &point{field: fields()[0], base: math.E}
	if q := over(p.eval(a), p.eval(b)); real(q) < 0 {
		return -1, true
	}
	return 1, true
}

// Coprime reports whether args are integers without a common divisor or not all
// integers.
func (c *Comparer) Coprime(args []*expr.Node) bool {
	divisor := new(big.Int)
	for _, arg := range args {
		r, ok := c.Rational(arg)
		if !ok || !r.IsInt() {
			return true
		}
		divisor.GCD(nil, nil, divisor, new(big.Int).Abs(r.Num()))
	}
	return divisor.IsInt64() && divisor.Int64() == 1
}

// decimal reports whether n has a number with digits after the decimal point.
func decimal(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool { return m.Kind == expr.Number && m.Places > 0 })
}

// literal returns the decimal that n consists of, or nil.
func literal(n *expr.Node) *expr.Node {
	for n.Kind == expr.Unit || n.Kind == expr.Product && len(n.Args) == 2 && n.Args[0].Kind == expr.Number &&
		inverts(n.Args[0].Value) {
		n = n.Args[len(n.Args)-1]
	}
	if n.Kind == expr.Number && n.Places > 0 {
		return n
	}
	return nil
}

// isLog reports whether n is a logarithm that does not say its base.
func isLog(n *expr.Node) bool { return n.Kind == expr.Call && n.Name == "log" && len(n.Args) == 1 }

// isVariable reports whether n is a variable, or a structure such as a tuple, which has no numeric value.
func isVariable(n *expr.Node) bool {
	return n.IsVariable() || n.Kind > expr.Call && n.Kind != expr.Unit && n.Kind != expr.Label
}

// rounding returns half a unit in the last place of a decimal, plus a small margin.
func rounding(n *expr.Node) float64 { return 0.5000001 * math.Pow10(-min(n.Places, 300)) }

// terminates reports whether r has a finite decimal expansion.
func terminates(r *big.Rat) bool {
	if r == nil {
		return false
	}
	den := new(big.Int).Set(r.Denom())
	for _, p := range []int64{2, 5} {
		for q, m := new(big.Int), new(big.Int); ; den.Set(q) {
			if q.DivMod(den, big.NewInt(p), m); m.Sign() != 0 {
				break
			}
		}
	}
	return den.IsInt64() && den.Int64() == 1
}
