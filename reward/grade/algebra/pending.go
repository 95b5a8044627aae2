package algebra

import (
	"math/big"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Pending returns the operations of n that are left to do, by name: sums of numbers and
// of like terms, products of numbers, powers and roots of numbers that are rational,
// functions of constants, limits, integrals. An answer in final form has none that the
// reference answer lacks.
func Pending(n *expr.Node) map[string]bool {
	p := pending{}
	p.visit(n)
	return p
}

// pending holds the names of operations that are left to do.
type pending map[string]bool

// visit marks the operations of n and of its arguments that are left to do.
func (p pending) visit(n *expr.Node) {
	switch n.Kind {
	case expr.Number:
		p.mark("product", strings.HasPrefix(n.Digits, "--"))
	case expr.Sum:
		p.sum(n)
		return
	case expr.Product:
		p.product(n)
		return
	case expr.Power:
		p.power(n)
		if rational(n.Args[1]) != nil {
			p.visit(n.Args[0])
			return
		}
	case expr.Call:
		p.call(n)
	}
	for _, arg := range n.Args {
		p.visit(arg)
	}
}

// sum reports terms that can be added up.
func (p pending) sum(n *expr.Node) {
	seen := map[string]bool{}
	for _, term := range flat(n, expr.Sum) {
		p.visit(term)
		if f := flat(term, expr.Product); len(f) == 2 && f[1].Kind == expr.Sum && rational(f[0]) != nil {
			p["sum"] = true // 1 - (x - 2)
		}
		sign, rest := coefficient(term)
		p.mark("sum", seen[rest] || sign == 0)
		seen[rest] = true
	}
}

// product reports factors that can be multiplied out or cancelled.
func (p pending) product(n *expr.Node) {
	var above, below []*big.Rat // numbers
	bases := map[string]bool{}  // of the other factors
	numerator := false          // one of them is above the line
	for _, f := range factors(n) {
		base, times := f, big.NewRat(1, 1)
		if r := exponent(f); r != nil {
			base, times = f.Args[0], r
		}
		inverse := inverts(times)
		switch {
		case f.Is("±") || f.Is("∓"):
			continue
		case base.Kind == expr.Number && base == f:
			if !isSign(f) {
				above = append(above, f.Value)
			}
			continue
		case base.Kind == expr.Number && inverse:
			below = append(below, base.Value)
			continue
		case inverse:
			p.visit(base)
		case !isPowerOfTen(f):
			p.visit(f)
		}
		numerator = numerator || times.Sign() > 0 && !isPowerOfTen(f)
		key := baseKey(f, base, times)
		p.mark("product", bases[key])
		bases[key] = true
		if base.Kind == expr.Matrix {
			p.mark("matrix", bases["matrix"])
			bases["matrix"] = true
		}
	}
	p.coefficient(above, below, numerator)
}

// mark records the operation name if it is left to do.
func (p pending) mark(name string, left bool) {
	if left {
		p[name] = true
	}
}

// baseKey returns one text for factors that combine into one power. Roots of numbers
// combine if they are on the same side of the line.
func baseKey(f, base *expr.Node, exponent *big.Rat) string {
	if base.Kind != expr.Number {
		return Key(base)
	}
	key := "root"
	if exponent.IsInt() {
		key = Key(f)
	}
	if exponent.Sign() < 0 {
		key += " below"
	}
	return key
}

// coefficient reports what is left to do with the numbers above and below the line of a
// product. numerator is whether another factor is above the line.
func (p pending) coefficient(above, below []*big.Rat, numerator bool) {
	one := big.NewRat(1, 1)
	switch {
	case len(above) > 1, len(below) > 1:
		p["product"] = true
	case len(below) == 1 && (below[0].Sign() == 0 || !below[0].IsInt()):
		p["quotient"] = true
	case len(below) == 1 && len(above) == 1:
		p.mark("quotient", !above[0].IsInt() || new(big.Rat).Quo(above[0], below[0]).IsInt())
	case len(below) == 1:
		p.mark("quotient", below[0].Cmp(one) == 0)
	case len(above) == 1:
		p.mark("product", above[0].Sign() == 0 || above[0].Cmp(one) == 0 && numerator)
	}
}

// power reports a power that can be worked out.
func (p pending) power(n *expr.Node) {
	base, exponent := n.Args[0], rational(n.Args[1])
	switch {
	case exponent == nil:
	case base.Is("i") && exponent.IsInt():
		p["power"] = true
	case exponent.Cmp(big.NewRat(1, 1)) == 0:
		p["first power"] = true
	case exponent.Sign() == 0, base.Kind == expr.Power && rational(base.Args[1]) != nil && exponent.IsInt():
		p["power"] = true
	case rational(base) == nil:
	case exponent.IsInt() && !isPowerOfTen(n):
		p["power"] = true
	case !exponent.IsInt():
		even := exponent.Denom().Bit(0) == 0
		if r := (&exact{}).power(rational(base), exponent); r != nil || even && rational(base).Sign() < 0 {
			p["root"] = true
		}
	}
}

// call reports a function that can be evaluated.
func (p pending) call(n *expr.Node) {
	if !Elementary(n.Name) || n.Name != "cup" && n.Name != "cap" && n.Name != `\` && !n.Has(isVariable) {
		p["call "+family(n.Name)] = true
	}
}

// family returns one name for functions that are written in terms of each other.
func family(name string) string {
	switch name {
	case "sin", "cos", "tan", "cot", "sec", "csc":
		return "sin"
	case "log", "ln", "lg":
		return "log"
	case "binom", "factorial":
		return "binom"
	}
	return name
}
