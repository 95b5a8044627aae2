package algebra

import (
	"math/big"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// The bounds on exact arithmetic.
const (
	maxBits    = 8192    // of a number
	maxKeyBits = 1024    // of a number that a key spells out, in bits
	maxWork    = 1 << 22 // total for one comparison, in bits
)

// exact evaluates expressions in rational arithmetic.
type exact struct{ work int }

// keep returns r, or nil if r is too large or the work limit is exceeded.
func (e *exact) keep(r *big.Rat) *big.Rat {
	bits := r.Num().BitLen() + r.Denom().BitLen()
	e.work += bits + 64
	if bits > maxBits || e.work > maxWork {
		return nil
	}
	return r
}

// eval returns the value of n, or nil if n is not rational or exceeds the bounds.
func (e *exact) eval(n *expr.Node) *big.Rat {
	if e.work > maxWork {
		return nil
	}
	switch n.Kind {
	case expr.Number:
		return e.keep(n.Value)
	case expr.Sum, expr.Product:
		return e.gather(n)
	case expr.Power:
		base, exponent := e.eval(n.Args[0]), e.eval(n.Args[1])
		if base == nil || exponent == nil {
			return nil
		}
		return e.power(base, exponent)
	case expr.Call:
		return e.call(n)
	case expr.Unit, expr.Label:
		r := e.eval(n.Args[0])
		if r != nil && n.Name == "%" {
			r = new(big.Rat).Quo(r, big.NewRat(100, 1))
		}
		return r
	}
	return nil
}

// gather returns the value of a sum or product, or nil if it is unknown or too large.
func (e *exact) gather(n *expr.Node) *big.Rat {
	total := new(big.Rat)
	if n.Kind == expr.Product {
		total.SetInt64(1)
	}
	for _, arg := range n.Args {
		r := e.eval(arg)
		if r == nil {
			return nil
		}
		if n.Kind == expr.Product {
			r = new(big.Rat).Mul(total, r)
		} else {
			r = new(big.Rat).Add(total, r)
		}
		if total = e.keep(r); total == nil {
			return nil
		}
	}
	return total
}

// power returns base to the exponent if the result is rational, or nil.
func (e *exact) power(base, exponent *big.Rat) *big.Rat {
	if !exponent.Num().IsInt64() || !exponent.Denom().IsInt64() || exponent.Denom().Int64() > 16 {
		return e.trivial(base, exponent)
	}
	if degree := exponent.Denom().Int64(); degree > 1 {
		e.work += 16 * (base.Num().BitLen() + base.Denom().BitLen())
		num, den := intRoot(base.Num(), degree), intRoot(base.Denom(), degree)
		if num == nil || den == nil {
			return nil
		}
		base = new(big.Rat).SetFrac(num, den)
	}
	times := exponent.Num().Int64()
	if base.Sign() == 0 && times <= 0 {
		return nil
	}
	size := int64(max(base.Num().BitLen(), base.Denom().BitLen()))
	if size > 1 && (times > maxBits || times < -maxBits || size*max(times, -times) > 2*maxBits) {
		return nil
	}
	if size <= 1 { // 1, -1 or 0
		return e.trivial(base, big.NewRat(times, 1))
	}
	abs := big.NewInt(max(times, -times))
	num, den := new(big.Int).Exp(base.Num(), abs, nil), new(big.Int).Exp(base.Denom(), abs, nil)
	if times < 0 {
		num, den = den, num
	}
	return e.keep(new(big.Rat).SetFrac(num, den))
}

// trivial returns a power of 1, -1 or 0.
func (e *exact) trivial(base, exponent *big.Rat) *big.Rat {
	if !exponent.IsInt() || !base.IsInt() || base.Num().BitLen() > 1 {
		return nil
	}
	if base.Sign() < 0 && exponent.Num().Bit(0) == 0 {
		return big.NewRat(1, 1)
	}
	if base.Sign() == 0 && exponent.Sign() <= 0 {
		return nil
	}
	return base
}

// intRoot returns the exact root of x, or nil.
func intRoot(x *big.Int, degree int64) *big.Int {
	if x.Sign() < 0 {
		if degree%2 == 0 {
			return nil
		}
		if r := intRoot(new(big.Int).Neg(x), degree); r != nil {
			return r.Neg(r)
		}
		return nil
	}
	if x.Sign() == 0 {
		return new(big.Int)
	}
	// Newton's method from above.
	k, less := big.NewInt(degree), big.NewInt(degree-1)
	r := new(big.Int).Lsh(big.NewInt(1), uint(x.BitLen())/uint(degree)+1)
	for {
		next := new(big.Int).Exp(r, less, nil)
		next.Quo(x, next)
		next.Add(next, new(big.Int).Mul(r, less))
		next.Quo(next, k)
		if next.Cmp(r) >= 0 {
			break
		}
		r = next
	}
	if new(big.Int).Exp(r, k, nil).Cmp(x) != 0 {
		return nil
	}
	return r
}

// call returns the value of a function of rational numbers, or nil if it is not rational or exceeds the
// bounds.
func (e *exact) call(n *expr.Node) *big.Rat {
	if n.Name == "det" && len(n.Args) == 1 && n.Args[0].Kind == expr.Matrix {
		return e.determinant(n.Args[0])
	}
	args := make([]*big.Rat, len(n.Args))
	for i, arg := range n.Args {
		if args[i] = e.eval(arg); args[i] == nil {
			return nil
		}
	}
	small := func(i int) (int64, bool) {
		if i >= len(args) || !args[i].IsInt() || args[i].Sign() < 0 || args[i].Num().BitLen() > 10 {
			return 0, false
		}
		return args[i].Num().Int64(), true
	}
	switch n.Name {
	case "factorial":
		if v, ok := small(0); ok && len(args) == 1 {
			e.work += 8 * int(v)
			return e.keep(new(big.Rat).SetInt(new(big.Int).MulRange(1, v)))
		}
	case "binom":
		a, ok := small(0)
		if b, both := small(1); ok && both && len(args) == 2 {
			e.work += 8 * int(a)
			return e.keep(new(big.Rat).SetInt(new(big.Int).Binomial(a, b)))
		}
	case "abs":
		if len(args) == 1 {
			return new(big.Rat).Abs(args[0])
		}
	case "floor", "ceil":
		if len(args) == 1 {
			q, m := new(big.Int).DivMod(args[0].Num(), args[0].Denom(), new(big.Int))
			if n.Name == "ceil" && m.Sign() != 0 {
				q.Add(q, big.NewInt(1))
			}
			return new(big.Rat).SetInt(q)
		}
	case "mod":
		if len(args) == 2 && args[0].IsInt() && args[1].IsInt() && args[1].Sign() > 0 {
			return new(big.Rat).SetInt(new(big.Int).Mod(args[0].Num(), args[1].Num()))
		}
	case "max", "min":
		return extreme(args, n.Name == "max")
	}
	return nil
}

// extreme returns the largest or the smallest of args.
func extreme(args []*big.Rat, largest bool) *big.Rat {
	var best *big.Rat
	for _, arg := range args {
		if best == nil || (arg.Cmp(best) > 0) == largest {
			best = arg
		}
	}
	return best
}

// determinant returns the determinant of a matrix of up to 3 rows.
func (e *exact) determinant(m *expr.Node) *big.Rat {
	size := len(m.Args)
	if size > 3 {
		return nil
	}
	cells := make([][]*big.Rat, size)
	for i, row := range m.Args {
		if len(row.Args) != size {
			return nil
		}
		for _, cell := range row.Args {
			r := e.eval(cell)
			if r == nil {
				return nil
			}
			cells[i] = append(cells[i], r)
		}
	}
	return e.keep(minor(cells))
}

// minor computes a determinant by expansion along the first row.
func minor(cells [][]*big.Rat) *big.Rat {
	total := new(big.Rat)
	if len(cells) == 1 {
		return total.Set(cells[0][0])
	}
	for j, cell := range cells[0] {
		var rest [][]*big.Rat
		for _, row := range cells[1:] {
			rest = append(rest, append(append([]*big.Rat{}, row[:j]...), row[j+1:]...))
		}
		term := new(big.Rat).Mul(cell, minor(rest))
		if j%2 == 1 {
			term.Neg(term)
		}
		total.Add(total, term)
	}
	return total
}
