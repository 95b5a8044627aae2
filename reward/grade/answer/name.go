package answer

import (
	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/question"
)

// misnames reports whether a response gives its value to another quantity of the
// question than the one asked for.
func misnames(q *question.Question, head *expr.Node) bool {
	if q.Text == "" {
		return false
	}
	if head.Kind == expr.Call && len(head.Name) == 1 && q.Asks("derivative of") {
		return true
	}
	target, key := q.Target(), algebra.Key(head)
	known := !head.Has(func(n *expr.Node) bool { return n.Kind == expr.Symbol && !q.Formulas().Symbols[algebra.Key(n)] })
	return target != "" && key != target && (q.Formulas().Keys[key] || known && head.Kind <= expr.Call)
}

// defines reports whether the left side of an equation is a quantity of the question, as
// in "x + y = 5" if it asks for x + y. An equation of the question defines nothing.
func defines(q *question.Question, n *expr.Node) bool {
	head := n.Args[0]
	if isConstant(head) {
		return false
	}
	if q.Text == "" {
		return true
	}
	if algebra.Key(head) == q.Target() {
		return true
	}
	if q.Formulas().Keys[algebra.Key(n)] || head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }) && !q.Formulas().Alone[algebra.Key(head)] && !q.Asks("derivative", "differentiate", "slope", "rate of change", "f'") {
		return false
	}
	if head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }) {
		return true
	}
	return q.Formulas().Alone[algebra.Key(head)] || algebra.Variables(head) > 1 && !head.Has(func(m *expr.Node) bool { return m.Kind == expr.Power }) || head.Has(func(m *expr.Node) bool { return m.Is("pi") })
}
