package algebra

import (
	"math"
	"math/big"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

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

func isLog(n *expr.Node) bool { return n.Kind == expr.Call && n.Name == "log" && len(n.Args) == 1 }

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
