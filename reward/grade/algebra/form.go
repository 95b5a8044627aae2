package algebra

import (
	"math"
	"math/big"
	"slices"
	"strconv"
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

type pending map[string]bool

func (p pending) visit(n *expr.Node) {
	switch n.Kind {
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
		coefficient, rest := coefficient(term)
		if seen[rest] || coefficient.Sign() == 0 {
			p["sum"] = true
		}
		seen[rest] = true
	}
}

// product reports factors that can be multiplied out or cancelled.
func (p pending) product(n *expr.Node) {
	above, below, bases := []*big.Rat{}, []*big.Rat{}, map[string]bool{}
	times := false // a factor that is not a number, above the line
	for _, f := range factors(n) {
		base, exponent := f, big.NewRat(1, 1)
		if f.Kind == expr.Power {
			if r := rational(f.Args[1]); r != nil {
				base, exponent = f.Args[0], r
			}
		}
		switch inverse := exponent.Cmp(big.NewRat(-1, 1)) == 0; {
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
		default:
			if !isTen(f) {
				p.visit(f)
			}
		}
		times = times || exponent.Sign() > 0
		key := Key(base)
		if base.Kind == expr.Number {
			key = "root"
			if exponent.IsInt() {
				key = Key(f)
			}
			if exponent.Sign() < 0 {
				key += " below"
			}
		}
		if bases[key] {
			p["product"] = true
		}
		bases[key] = true
		if base.Kind == expr.Matrix {
			if bases["matrix"] {
				p["matrix"] = true
			}
			bases["matrix"] = true
		}
	}
	one := big.NewRat(1, 1)
	switch {
	case len(above) > 1, len(below) > 1:
		p["product"] = true
	case len(below) == 1 && (below[0].Sign() == 0 || !below[0].IsInt()):
		p["quotient"] = true
	case len(below) == 1 && len(above) == 1:
		if q := new(big.Rat).Quo(above[0], below[0]); q.IsInt() || !above[0].IsInt() {
			p["quotient"] = true
		}
	case len(below) == 1 && below[0].Cmp(one) == 0:
		p["quotient"] = true
	case len(above) == 1 && above[0].Cmp(one) == 0 && times:
		p["product"] = true
	case len(above) == 1 && above[0].Sign() == 0:
		p["product"] = true
	}
}

func (p pending) power(n *expr.Node) {
	base, exponent := n.Args[0], rational(n.Args[1])
	switch {
	case exponent == nil:
	case base.Is("i") && exponent.IsInt():
		p["power"] = true
	case exponent.Sign() == 0, exponent.Cmp(big.NewRat(1, 1)) == 0, base.Kind == expr.Power && rational(base.Args[1]) != nil && exponent.IsInt():
		p["power"] = true
	case rational(base) == nil:
	case exponent.IsInt() && !isTen(n):
		p["power"] = true
	case !exponent.IsInt():
		if r := (&exact{}).power(rational(base), exponent); r != nil {
			p["root"] = true
		}
	}
}

// Elementary reports whether a function of a variable is part of a formula.
func Elementary(name string) bool {
	switch name {
	case "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
		"log", "ln", "lg", "exp", "abs", "floor", "ceil", "factorial", "binom", "cup", "cap", `\`:
		return true
	}
	return false
}

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

// isSign reports whether n is the factor -1 that stands for a minus sign.
func isSign(n *expr.Node) bool { return n.Digits == "" && n.Value.Cmp(big.NewRat(-1, 1)) == 0 }

// isTen reports whether n is a power of ten in digits, as in scientific notation.
func isTen(n *expr.Node) bool {
	if n.Kind != expr.Power || n.Args[0].Kind != expr.Number || n.Args[1].Kind != expr.Number {
		return false
	}
	return n.Args[0].Digits == "10" && n.Args[1].Value.IsInt()
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
			total.Mul(total, r)
		}
		return total
	case expr.Power:
		base := rational(n.Args[0])
		if e := n.Args[1]; base != nil && base.Sign() != 0 && e.Kind == expr.Number && e.Value.Cmp(big.NewRat(-1, 1)) == 0 {
			return new(big.Rat).Inv(base)
		}
	}
	return nil
}

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

// factors returns the factors of a product, those of its denominators as powers of -1.
func factors(n *expr.Node) (all []*expr.Node) {
	for _, f := range flat(n, expr.Product) {
		if f.Kind == expr.Power && f.Args[0].Kind == expr.Product {
			if r := rational(f.Args[1]); r != nil && r.Cmp(big.NewRat(-1, 1)) == 0 {
				for _, below := range flat(f.Args[0], expr.Product) {
					all = append(all, expr.Invert(below))
				}
				continue
			}
		}
		all = append(all, f)
	}
	return all
}

// coefficient splits a term into its rational factor and the key of the rest.
func coefficient(n *expr.Node) (*big.Rat, string) {
	total := big.NewRat(1, 1)
	var rest []string
	for _, f := range flat(n, expr.Product) {
		if r := rational(f); r != nil {
			total.Mul(total, r)
		} else {
			rest = append(rest, Key(f))
		}
	}
	slices.Sort(rest)
	return total, strings.Join(rest, " ")
}

// Key returns one text for expressions that differ only in the order of terms and
// factors, in parentheses, and in zeros and ones that change nothing.
func Key(n *expr.Node) string {
	switch n.Kind {
	case expr.Number:
		return n.Value.RatString() + n.Base
	case expr.Sum:
		var keys []string
		for _, term := range flat(n, expr.Sum) {
			if key := Key(term); key != "0" {
				keys = append(keys, key)
			}
		}
		return joined("+", keys, "0")
	case expr.Product:
		sign := 1
		var keys []string
		for _, f := range flat(n, expr.Product) {
			key := Key(f)
			if rest, ok := strings.CutPrefix(key, "-"); ok {
				sign, key = -sign, rest
			}
			if key != "1" {
				keys = append(keys, key)
			}
		}
		if sign < 0 {
			return "-" + joined("*", keys, "1")
		}
		return joined("*", keys, "1")
	case expr.Power:
		if e := Key(n.Args[1]); e != "1" {
			return "(" + Key(n.Args[0]) + ")^(" + e + ")"
		}
		return Key(n.Args[0])
	case expr.Relation:
		if len(n.Ops) == 1 && n.Ops[0] == "=" {
			return joined("=", []string{Key(n.Args[0]), Key(n.Args[1])}, "")
		}
	case expr.Bracket:
		if len(n.Args) == 1 && n.Open == "(" {
			return Key(n.Args[0])
		}
	}
	key := strconv.Itoa(int(n.Kind)) + n.Name + n.Open
	for i, arg := range n.Args {
		if i > 0 && i-1 < len(n.Ops) {
			key += n.Ops[i-1]
		}
		key += "[" + Key(arg) + "]"
	}
	return key + n.Close
}

// joined sorts the keys and joins them. Without keys, it returns none.
func joined(op string, keys []string, none string) string {
	switch len(keys) {
	case 0:
		return none
	case 1:
		return keys[0]
	}
	slices.Sort(keys)
	return "(" + strings.Join(keys, op) + ")"
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
		case isTen(f):
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

// Rounds reports whether b is the constant a, rounded to at least 3 digits, or 2 after the point.
func Rounds(a, b *expr.Node) bool {
	d := literal(b)
	if d == nil || d.Figures < 2 || d.Places == 0 && d.Figures < 3 {
		return false
	}
	x, okA := Approximate(a)
	y, okB := Approximate(b)
	return okA && okB && math.Abs(x-y) <= rounding(d)
}

// Reduced reports whether the fraction n, if it is one, is in lowest terms and its roots
// have no square factor.
func Reduced(n *expr.Node) bool {
	if n.Kind == expr.Sum {
		return !slices.ContainsFunc(n.Args, func(term *expr.Node) bool { return !Reduced(term) })
	}
	num, den := big.NewInt(1), big.NewInt(1)
	for _, f := range flat(n, expr.Product) {
		switch {
		case f.Kind == expr.Number && f.Value.IsInt():
			num.Mul(num, f.Value.Num())
		case f.Kind == expr.Power && f.Args[0].Kind == expr.Number && f.Args[0].Value.IsInt() && rational(f.Args[1]) != nil && rational(f.Args[1]).Cmp(big.NewRat(-1, 1)) == 0:
			den.Mul(den, f.Args[0].Value.Num())
		case f.Kind == expr.Sum:
			if !Reduced(f) {
				return false
			}
		}
	}
	if den.Sign() != 0 && num.Sign() != 0 && new(big.Int).GCD(nil, nil, new(big.Int).Abs(num), new(big.Int).Abs(den)).Cmp(big.NewInt(1)) != 0 {
		return false
	}
	return !n.Has(func(m *expr.Node) bool {
		if m.Kind != expr.Power || m.Args[0].Kind != expr.Number || !m.Args[0].Value.IsInt() {
			return false
		}
		r := rational(m.Args[1])
		return r != nil && r.Cmp(big.NewRat(1, 2)) == 0 && hasSquare(m.Args[0].Value.Num())
	})
}

// hasSquare reports whether the square of a small prime divides x.
func hasSquare(x *big.Int) bool {
	for _, q := range []int64{4, 9, 25, 49, 121, 169, 289, 361} {
		if x.Sign() != 0 && new(big.Int).Mod(x, big.NewInt(q)).Sign() == 0 {
			return true
		}
	}
	return false
}

// Squares returns the number of powers of sums in n.
func Squares(n *expr.Node) int {
	total := 0
	n.Has(func(m *expr.Node) bool {
		if m.Kind == expr.Power && m.Args[0].Kind == expr.Sum {
			if r := rational(m.Args[1]); r != nil && r.IsInt() && r.Sign() > 0 {
				total++
			}
		}
		return false
	})
	return total
}

// Mantissa returns the factor of a number in scientific notation.
func Mantissa(n *expr.Node) (*big.Rat, bool) {
	tens, factor := false, big.NewRat(1, 1)
	for _, f := range flat(n, expr.Product) {
		if isTen(f) {
			tens = true
		} else if f.Kind == expr.Number {
			factor = new(big.Rat).Mul(factor, f.Value)
		}
	}
	return factor, tens
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
		if n.Kind == expr.Number && n.Digits == "" && (n.Value.Cmp(big.NewRat(-1, 1)) == 0) {
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
		if f.Kind == expr.Power {
			if r := rational(f.Args[1]); r != nil && r.IsInt() && r.Num().IsInt64() && r.Sign() > 0 {
				times = int(min(r.Num().Int64(), 1000))
				f = f.Args[0]
			}
		}
		if f.Has(isVariable) {
			total += times * max(1, min(1, len(f.Args)))
		}
	}
	return total
}

// Expanded reports whether no factor or base of a whole power in n is a sum.
func Expanded(n *expr.Node) bool {
	return !n.Has(func(m *expr.Node) bool {
		switch m.Kind {
		case expr.Product:
			return slices.ContainsFunc(m.Args, func(f *expr.Node) bool { return f.Kind == expr.Sum })
		case expr.Power:
			r := rational(m.Args[1])
			return m.Args[0].Kind == expr.Sum && r != nil && r.IsInt() && r.Sign() > 0
		}
		return false
	})
}

// Rationalized reports whether no denominator in n has a root.
func Rationalized(n *expr.Node) bool {
	root := func(m *expr.Node) bool {
		if m.Kind != expr.Power {
			return false
		}
		r := rational(m.Args[1])
		return r != nil && !r.IsInt()
	}
	return !n.Has(func(m *expr.Node) bool {
		if m.Kind != expr.Power {
			return false
		}
		r := rational(m.Args[1])
		return r != nil && r.Sign() < 0 && (m.Args[0].Has(root) || !r.IsInt())
	})
}

// Divides reports whether n has a sum with a variable in a denominator.
func Divides(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool {
		if m.Kind != expr.Power || m.Args[0].Kind != expr.Sum {
			return false
		}
		r := rational(m.Args[1])
		return r != nil && r.Sign() < 0 && m.Args[0].Has(isVariable)
	})
}

// Opaque reports whether n contains an integral, a sum, a limit, a derivative, a function
// that is not evaluated here, or a product of tuples.
func Opaque(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool {
		return m.Kind == expr.Call && !Elementary(m.Name) && m.Name != "sqrt" || m.Kind == expr.Product && slices.ContainsFunc(m.Args, func(f *expr.Node) bool { return f.Kind == expr.Bracket })
	})
}
