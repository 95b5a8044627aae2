package algebra

import (
	"math"
	"math/big"
	"math/cmplx"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Same reports whether a model's expression has the value of the one expected.
// Exact expressions have to agree exactly; a decimal may stand for a number that
// has no shorter form where it is rounded correctly to 6 digits or more.
func Same(want, got *expr.Node) bool {
	if ok, sure := identical(want, got); ok || sure && !decimal(want) && !decimal(got) {
		return ok
	}
	for _, base := range []float64{math.E, 10} { // of a log without one
		if ok, again := near(want, got, base); ok {
			return true
		} else if !again {
			return false
		}
	}
	return false
}

// identical compares residues; sure says that a difference is one of values.
func identical(a, b *expr.Node) (same, sure bool) {
	for _, f := range fields() {
		g := f
		x, okX := f.eval(a)
		y, okY := g.eval(b)
		if !okX || !okY {
			return false, false
		}
		if x != y {
			return false, !f.opaque && !g.opaque
		}
	}
	return true, true
}

// Proportional reports whether a is a constant times b, and the constant's sign;
// neither may be zero.
func Proportional(a, b *expr.Node) (sign int, ok bool) {
	var ratio uint64
	f := fields()[0]
	first := true
	for _, shift := range []string{"", "1", "2"} {
		x, okX := f.eval(rename(a, shift))
		y, okY := f.eval(rename(b, shift))
		if !okX || !okY || x == 0 || y == 0 {
			return 0, false
		}
		q := f.mul(x, f.pow(y, f.prime-2))
		if !first && q != ratio {
			return 0, false
		}
		ratio, first = q, false
	}
	p := &point{field: fields()[0], base: math.E}
	if q := p.eval(a) / p.eval(b); real(q) < 0 {
		return -1, true
	}
	return 1, true
}

// rename gives the variables of n other names, and so other values.
func rename(n *expr.Node, suffix string) *expr.Node {
	if suffix == "" {
		return n
	}
	c := *n
	if n.Kind == expr.Symbol && n.Name != "pi" && n.Name != "e" && n.Name != "i" {
		c.Name += " " + suffix
	}
	c.Args = make([]*expr.Node, len(n.Args))
	for i, arg := range n.Args {
		c.Args[i] = rename(arg, suffix)
	}
	return &c
}

func decimal(n *expr.Node) bool {
	return n.Has(func(m *expr.Node) bool { return m.Kind == expr.Number && m.Places > 0 })
}

// literal is the decimal that n is, or nil.
func literal(n *expr.Node) *expr.Node {
	for n.Kind == expr.Unit || n.Kind == expr.Product && len(n.Args) == 2 && n.Args[0].Kind == expr.Number && n.Args[0].Value.Cmp(big.NewRat(-1, 1)) == 0 {
		n = n.Args[len(n.Args)-1]
	}
	if n.Kind == expr.Number && n.Places > 0 {
		return n
	}
	return nil
}

// near compares values at some points; again says that logarithms to another
// base might agree.
func near(want, got *expr.Node, base float64) (same, again bool) {
	again = want.Has(isLog) || got.Has(isLog)
	constant := !want.Has(isVariable) && !got.Has(isVariable)
	for seed := range uint64(3) {
		p := &point{seed: seed, field: fields()[0], base: base}
		a, b := p.eval(want), p.eval(got)
		if cmplx.IsNaN(a) || cmplx.IsNaN(b) || cmplx.IsInf(a) || cmplx.IsInf(b) || !agree(want, got, a, b, constant) {
			return false, again
		}
	}
	return true, again
}

func isLog(n *expr.Node) bool { return n.Kind == expr.Call && n.Name == "log" && len(n.Args) == 1 }

func isVariable(n *expr.Node) bool {
	return n.Kind == expr.Symbol && n.Name != "pi" && n.Name != "e" && n.Name != "i" || n.Kind > expr.Call && n.Kind != expr.Unit && n.Kind != expr.Label
}

// agree reports whether a, the value of want, and b, that of got, are the same
// for all that can be known from how they are written.
func agree(want, got *expr.Node, a, b complex128, constant bool) bool {
	distance, size := cmplx.Abs(a-b), max(cmplx.Abs(a), cmplx.Abs(b))
	if distance <= 1e-10*size {
		return !exactly(want, got)
	}
	w, g := literal(want), literal(got)
	switch {
	case !constant || w == nil && g == nil:
		return (decimal(want) || decimal(got)) && distance <= 1e-6*size && !whole(want)
	case w != nil && g != nil:
		return w.Figures >= 6 && g.Figures >= 6 && distance <= 1e-6*size
	case g != nil:
		return !whole(want) && g.Figures >= 6 && distance <= rounding(g)
	}
	return w.Figures >= 4 && !terminates(got) && distance <= rounding(w)
}

// exactly reports whether both are rational, so that they differ where their
// residues do.
func exactly(a, b *expr.Node) bool {
	x, okX := Rational(a)
	y, okY := Rational(b)
	return okX && okY && x.Cmp(y) != 0 && !(decimal(a) || decimal(b))
}

// rounding is half a unit of the last digit of a decimal, and a little more.
func rounding(n *expr.Node) float64 { return 0.5000001 * math.Pow10(-min(n.Places, 300)) }

func whole(n *expr.Node) bool {
	r, ok := Rational(n)
	return ok && r.IsInt()
}

// terminates reports whether n is a fraction that a decimal can say exactly.
func terminates(n *expr.Node) bool {
	r, ok := Rational(n)
	if !ok {
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
