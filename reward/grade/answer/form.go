package answer

import (
	"math/big"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// form returns why got, written as text, is not an answer to the question although it
// has the value of want, or "".
func form(q *question.Question, want, got *expr.Node, text string) string {
	w, g := unlabelled(want), unlabelled(got)
	if unfinished(w, g) {
		return Unfinished
	}
	literal, key := algebra.Literal(w), algebra.Key(g)
	switch {
	case literal && q.Asks("exact ", "exactly.", "exactly?") && got.Name != "%" && notation(w) == "fraction" &&
		notation(g) == "decimal" && !algebra.Exact(w, g):
		return OtherValue
	case key == algebra.Key(w) && !(literal && q.Transforms()):
		return ""
	case q.Formulas().Keys[key], literal && q.Asks("nearest", "round") && !algebra.Exact(w, g) && given(q, text):
		return Echo
	case !q.Transforms() && !q.Asks("decimal", "mixed number"):
		return ""
	case literal:
		return numberForm(q, w, g, text)
	}
	return expressionForm(q, w, g)
}

// unfinished reports whether g has operations left to do that w does not have.
func unfinished(w, g *expr.Node) bool {
	if algebra.Literal(w) && !algebra.Literal(g) && g.Kind < expr.Bracket || algebra.Divides(g) && !algebra.Divides(w) {
		return true
	}
	allowed := algebra.Pending(w)
	for _, part := range parts(g) {
		for name := range algebra.Pending(part) {
			if !allowed[name] {
				return true
			}
		}
	}
	// 2 × 45 for 2 × 3^2 × 5
	return allowed["product"] && isConstant(w) && isConstant(g) && algebra.Leaves(g) < algebra.Leaves(w) &&
		!algebra.Literal(g)
}

// numberForm returns why a number g, written as text, is not in the form of the number w that
// the question asks for, or "".
func numberForm(q *question.Question, w, g *expr.Node, text string) string {
	wanted, written := notation(w), notation(g)
	factor, tens := algebra.Mantissa(g)
	switch {
	case written != wanted && given(q, text):
		return Echo
	case wanted == "power" && !tens && q.Asks("scientific") && !strings.ContainsAny(text, "eE"):
		return OtherForm
	case tens && q.Asks("scientific") && (factor.Cmp(big.NewRat(10, 1)) >= 0 || factor.Cmp(big.NewRat(1, 1)) < 0):
		return OtherForm
	case tens && wanted != "power" && q.Asks("standard", "decimal", "ordinary"):
		return OtherForm
	case q.Reduces() && algebra.Reduced(w) && !algebra.Reduced(g):
		return Unfinished
	case wanted == "mixed" && written != "mixed" && q.Asks("mixed"):
		return OtherForm
	case (wanted == "decimal" || wanted == "mixed") && written == "fraction" &&
		q.Asks("a decimal", "decimal form", "in decimal", "equivalent decimal", "decimal equivalent", "decimal number",
			"terminating decimal"):
		return OtherForm
	}
	return ""
}

// given reports whether the question has the number that text writes.
func given(q *question.Question, text string) bool {
	text = strings.Trim(markup.Compact(text), "()[],.+")
	if strings.Contains(text, ".") {
		text = strings.TrimRight(text, "0")
	}
	return q.Formulas().Given[text]
}

// expressionForm returns why g is not in the form of w that the question asks for, or "".
func expressionForm(q *question.Question, w, g *expr.Node) string {
	switch {
	case q.Reduces() && algebra.Reduced(w) && !algebra.Reduced(g):
		return Unfinished
	case algebra.Squares(g) < algebra.Squares(w),
		q.Asks("in terms of", "only") && !algebra.SameFunctions(w, g),
		w.Kind == expr.Relation && explicit(w) && !explicit(g),
		(w.Kind == expr.Product || w.Kind == expr.Power) && !algebra.Expanded(w) &&
			algebra.Factors(g) < algebra.Factors(w),
		w.Kind == expr.Sum && algebra.Expanded(w) && !algebra.Expanded(g),
		w.Kind == expr.Sum && g.Kind != expr.Sum && q.Asks("partial fraction", "decompos"),
		algebra.Literal(g) && q.Asks("factor"), // 360 for 2^3 × 3^2 × 5
		w.Kind == expr.Power && isConstant(w) && q.Asks("as a power", "power of", "exponent"),
		q.Asks("rationali") && algebra.Rationalized(w) && !algebra.Rationalized(g):
		return OtherForm
	case q.Asks("simpl") && algebra.Leaves(g) > algebra.Leaves(w)*3/2+2:
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

// parts returns the sides of an equation or inequality that are not names, or n itself if n is neither.
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
	return n.Kind == expr.Relation && len(n.Args) == 2 && n.Args[0].Kind == expr.Symbol &&
		!n.Args[1].Has(func(m *expr.Node) bool { return m.Is(n.Args[0].Name) })
}

// notation returns how a number is written: "integer", "decimal", "fraction", "mixed", "base" if it names
// its base, or "power" if it has a 10 in it, as scientific notation has. The name of a unit precedes it.
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

// Canonical returns one text for equal answers, as far as equality is cheap to detect:
// the value of a rational number, otherwise the text in lower case without white space.
// "1/2", "0.50" and "x = \frac{1}{2}" share one; "\sqrt{8}" and "2\sqrt{2}" do not. It
// returns "" if s is not an answer.
func Canonical(s string) string {
	c := markup.Clean(s)
	if c == "" || len(c) > maxAnswer {
		return ""
	}
	if letter, ok := words.Choice(c); ok {
		return string(letter)
	}
	if n, ok := read(c, expr.Mode{Thousands: true}); ok {
		if n = flatten(n); n.Kind == expr.Relation && len(n.Ops) == 1 && n.Ops[0] == "=" &&
			n.Args[0].Kind == expr.Symbol {
			n = n.Args[1]
		}
		if r, ok := algebra.NewComparer(nil).Rational(n); ok {
			return r.RatString()
		}
	}
	return strings.ToLower(markup.Compact(c))
}
