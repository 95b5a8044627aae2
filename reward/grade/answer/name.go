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
	formulas, key := q.Formulas(), algebra.Key(head)
	alone := formulas.Alone[key]
	switch {
	case key == q.Target():
		return true
	case formulas.Keys[algebra.Key(n)]:
		return false
	case head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }):
		return alone || q.AsksSlope()
	}
	return alone || algebra.Variables(head) > 1 && !head.Has(func(m *expr.Node) bool { return m.Kind == expr.Power }) || head.Has(func(m *expr.Node) bool { return m.Is("pi") })
}
