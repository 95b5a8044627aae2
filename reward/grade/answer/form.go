package answer

import (
	"math/big"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/question"
)

// form returns why got, written as text, is not an answer to the question although it
// has the value of want, or "".
func form(q *question.Question, want, got *expr.Node, text string) string {
	w, g := unlabelled(want), unlabelled(got)
	if algebra.Literal(w) && !algebra.Literal(g) && g.Kind < expr.Bracket {
		return Unfinished
	}
	if algebra.Divides(g) && !algebra.Divides(w) {
		return Unfinished
	}
	allowed := algebra.Pending(w)
	for _, part := range parts(g) {
		for name := range algebra.Pending(part) {
			if !allowed[name] {
				return Unfinished
			}
		}
	}
	if q.Asks("exact") && algebra.Literal(w) && notation(w) == "fraction" && notation(g) == "decimal" && !algebra.Exact(w, g) {
		return OtherValue
	}
	if allowed["product"] && isConstant(w) && isConstant(g) && algebra.Leaves(g) < algebra.Leaves(w) && !algebra.Literal(g) {
		return Unfinished // 2 × 45
	}
	key := algebra.Key(g)
	if key == algebra.Key(w) && !(algebra.Literal(w) && q.Transforms()) {
		return ""
	}
	if q.Formulas().Keys[key] {
		return Echo
	}
	if !q.Transforms() && !q.Asks("decimal", "mixed number") {
		return ""
	}
	if algebra.Literal(w) {
		text = markup.Compact(text)
		switch factor, tens := algebra.Mantissa(g); {
		case q.Formulas().Given[text] && notation(g) != notation(w):
			return Echo
		case tens && q.Asks("scientific") && (factor.Cmp(big.NewRat(10, 1)) >= 0 || factor.Cmp(big.NewRat(1, 1)) < 0):
			return OtherForm
		}
		if q.Reduces() && algebra.Reduced(w) && !algebra.Reduced(g) {
			return Unfinished
		}
		if notation(w) == "mixed" && notation(g) != "mixed" && q.Asks("mixed") {
			return OtherForm
		}
		if notation(w) == "decimal" && notation(g) == "fraction" && q.Asks("as a decimal", "decimal form", "in decimal", "to a decimal", "equivalent decimal", "decimal equivalent", "decimal number", "terminating decimal", "a decimal") {
			return OtherForm
		}
		return ""
	}
	if q.Reduces() && algebra.Reduced(w) && !algebra.Reduced(g) {
		return Unfinished
	}
	switch {
	case algebra.Squares(g) < algebra.Squares(w), q.Asks("in terms of", "only") && !algebra.SameFunctions(w, g):
		return OtherForm
	case w.Kind == expr.Relation:
		if explicit(w) && !explicit(g) {
			return OtherForm
		}
	case w.Kind == expr.Product || w.Kind == expr.Power:
		if algebra.Factors(g) < algebra.Factors(w) && !algebra.Expanded(w) {
			return OtherForm
		}
	case w.Kind == expr.Sum && algebra.Expanded(w) && !algebra.Expanded(g):
		return OtherForm
	}
	if q.Asks("rationali") && algebra.Rationalized(w) && !algebra.Rationalized(g) {
		return OtherForm
	}
	if q.Asks("simpl") && algebra.Leaves(g) > algebra.Leaves(w)*3/2+2 {
		return Unfinished
	}
	return ""
}

// unlabelled returns n without words and units around it.
func unlabelled(n *expr.Node) *expr.Node {
	for n.Kind == expr.Unit || n.Kind == expr.Label {
		n = n.Args[0]
	}
	return n
}

// parts returns what an inequality or equation says about its name, or n itself.
func parts(n *expr.Node) (all []*expr.Node) {
	if n.Kind != expr.Relation {
		return []*expr.Node{n}
	}
	for _, arg := range n.Args {
		if !isName(arg) {
			all = append(all, arg)
		}
	}
	return all
}

// explicit reports whether an equation states one variable in terms of others.
func explicit(n *expr.Node) bool {
	return n.Kind == expr.Relation && len(n.Args) == 2 && n.Args[0].Kind == expr.Symbol && !n.Args[1].Has(func(m *expr.Node) bool { return m.Is(n.Args[0].Name) })
}

// notation returns how a number is written: as a decimal, a fraction, an integer or a
// power of ten.
func notation(n *expr.Node) string {
	switch {
	case n.Kind == expr.Number && n.Base != "":
		return "base"
	case n.Kind == expr.Number && n.Places > 0:
		return "decimal"
	case n.Kind == expr.Number && n.Digits == "":
		return "mixed"
	case n.Kind == expr.Number:
		return "integer"
	case n.Kind == expr.Unit:
		return n.Name + notation(n.Args[0])
	case n.Has(func(m *expr.Node) bool { return m.Kind == expr.Number && m.Digits == "10" }):
		return "power"
	}
	return "fraction"
}
