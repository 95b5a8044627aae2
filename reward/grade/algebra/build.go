package algebra

import (
	"math"
	"math/cmplx"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

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
	if n, m := cells(a), cells(b); n == 0 || m == 0 || n > maxCells || m > maxCells || len(a.Args[0].Args) != len(b.Args) {
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
