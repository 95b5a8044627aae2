package algebra

import (
	"hash/fnv"
	"math/big"
	"math/bits"

	"github.com/easyrl/easyrl/internal/splitmix"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// field evaluates an expression in the integers modulo a prime, with a fixed residue
// for each symbol. Two different rational functions agree at such a point with a
// probability of their degree over 2^62. One evaluation therefore distinguishes them
// exactly and in constant memory (Schwartz 1980, section 2). Anything else, such as a
// root, is opaque: its residue is a hash of its name and its arguments' residues.
type field struct {
	prime  uint64 // 1 modulo 4, below 2^62
	unit   uint64 // a square root of -1
	opaque bool   // something is not a rational function
	exact  *exact
}

// fields returns the two points at which expressions are evaluated.
func fields() [2]field {
	return [2]field{
		{prime: 4611686018427387817, unit: 120863620846201794},
		{prime: 4611686018427387761, unit: 1130501565556633554},
	}
}

// mul returns a·b modulo the prime.
func (f *field) mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	_, rest := bits.Div64(hi, lo, f.prime)
	return rest
}

// pow returns a to the exponent modulo the prime.
func (f *field) pow(a, exponent uint64) uint64 {
	r := uint64(1)
	for ; exponent > 0; exponent >>= 1 {
		if exponent&1 == 1 {
			r = f.mul(r, a)
		}
		a = f.mul(a, a)
	}
	return r
}

// residue returns x modulo m.
func residue(x *big.Int, m uint64) uint64 {
	return new(big.Int).Mod(x, new(big.Int).SetUint64(m)).Uint64()
}

// rational returns the residue of r. It returns false if the prime divides the denominator.
func (f *field) rational(r *big.Rat) (uint64, bool) {
	num, den := residue(r.Num(), f.prime), residue(r.Denom(), f.prime)
	if den == 1 {
		return num, true
	}
	return f.mul(num, f.pow(den, f.prime-2)), den != 0
}

// hash returns a residue that depends only on name and args.
func (f *field) hash(name string, args ...uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	for _, arg := range args {
		var b [8]byte
		for i := range b {
			b[i] = byte(arg >> (8 * i))
		}
		_, _ = h.Write(b[:])
	}
	return splitmix.Mix(h.Sum64()) % f.prime
}

// eval returns the residue of n and whether it has one.
func (f *field) eval(n *expr.Node) (uint64, bool) {
	switch n.Kind {
	case expr.Number:
		if n.Base != "" {
			f.opaque = true
			return f.hash("base "+n.Base+" "+n.Digits, 0), true
		}
		return f.rational(n.Value)
	case expr.Symbol:
		if n.Name == "i" {
			return f.unit, true
		}
		return f.hash(n.Name), true
	case expr.Sum, expr.Product:
		total := uint64(0)
		if n.Kind == expr.Product {
			total = 1
		}
		for _, arg := range n.Args {
			v, ok := f.eval(arg)
			if !ok {
				return 0, false
			}
			if n.Kind == expr.Product {
				total = f.mul(total, v)
			} else {
				total = (total + v) % f.prime
			}
		}
		return total, true
	case expr.Power:
		return f.power(n)
	case expr.Unit:
		v, ok := f.eval(n.Args[0])
		if n.Name == "%" {
			v = f.mul(v, f.pow(100, f.prime-2))
		}
		return v, ok
	}
	if n.Kind == expr.Call {
		if r := f.exact.eval(n); r != nil {
			return f.rational(r)
		}
	}
	return f.obscure(n)
}

// power returns the residue of a power. Only integer exponents and powers with an exact rational value have
// a meaning in the field; obscure handles the others. It returns false for a power of 0 that is not
// positive.
func (f *field) power(n *expr.Node) (uint64, bool) {
	base, ok := f.eval(n.Args[0])
	if !ok {
		return 0, false
	}
	exponent := f.exact.eval(n.Args[1])
	if exponent == nil || !exponent.IsInt() {
		if r := f.exact.eval(n); r != nil {
			return f.rational(r)
		}
		return f.obscure(n, base)
	}
	if base == 0 && exponent.Sign() <= 0 {
		return 0, false
	}
	return f.pow(base, residue(exponent.Num(), f.prime-1)), true
}

// obscure returns the residue of an expression that is not a rational function. args are
// the residues of its first arguments, if they are known.
func (f *field) obscure(n *expr.Node, args ...uint64) (uint64, bool) {
	f.opaque = true
	name := string(rune('0'+int(n.Kind))) + n.Name + n.Open + n.Close
	for _, op := range n.Ops {
		name += " " + op
	}
	for _, arg := range n.Args[len(args):] {
		v, ok := f.eval(arg)
		if !ok {
			return 0, false
		}
		args = append(args, v)
	}
	return f.hash(name, args...), true
}
