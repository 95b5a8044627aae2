package answer

import (
	"cmp"
	"slices"
	"strings"

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
	if name := strings.ToLower(head.Name); head.Kind == expr.Text && (q.IsOther(name) || q.Gives(name)) {
		return true
	}
	if head.Kind == expr.Symbol && (q.Denotes(head.Name) || q.InitialOfOther(head.Name)) {
		return true
	}
	if head.Kind == expr.Call && strings.HasSuffix(head.Name, "angle") && len(q.Formulas().Symbols) > 0 &&
		head.Has(func(m *expr.Node) bool { return m.Kind == expr.Symbol && !q.Formulas().Symbols[algebra.Key(m)] }) {
		return true // of other points
	}
	head = named(head)
	target, key := q.Target(), algebra.Key(head)
	asked := named(cmp.Or(q.TargetName(), &expr.Node{Kind: expr.Text}))
	if target != "" {
		target = algebra.Key(asked)
	}
	if !strings.EqualFold(key, target) && (isPoints(head) &&
		isPoints(asked) || head.Kind == expr.Symbol && asked.Kind == expr.Symbol && head.Name != "S" &&
		!strings.HasPrefix(head.Name, asked.Name+"_")) {
		return true
	}
	known := !head.Has(func(n *expr.Node) bool {
		return n.Kind == expr.Symbol && !q.Formulas().Symbols[algebra.Key(n)]
	})
	return target != "" && key != target && (q.Formulas().Keys[key] || known && head.Kind <= expr.Call)
}

// named returns the points in |AB|, and the vertex of an angle: C of angle ACB. It returns any other n
// itself.
func named(n *expr.Node) *expr.Node {
	switch {
	case len(n.Args) != 1:
	case n.Kind == expr.Call && n.Name == "abs" && isPoints(n.Args[0]):
		return n.Args[0]
	case n.Kind == expr.Call && strings.HasSuffix(n.Name, "angle") && n.Args[0].Kind == expr.Symbol:
		return n.Args[0]
	case n.Kind == expr.Call && strings.HasSuffix(n.Name, "angle") && isPoints(n.Args[0]) && len(n.Args[0].Args) == 3:
		return n.Args[0].Args[1]
	}
	return n
}

// isPoints reports whether n names a figure by its points: AB.
func isPoints(n *expr.Node) bool {
	return n.Kind == expr.Product && !slices.ContainsFunc(n.Args, func(m *expr.Node) bool {
		return m.Kind != expr.Symbol || len(m.Name) != 1 || m.Name < "A" || m.Name > "Z"
	})
}

// defines reports whether the left side of an equation is a quantity of the question, as
// in "x + y = 5" if it asks for x + y. An equation of the question defines nothing.
func defines(q *question.Question, n *expr.Node) bool {
	head := n.Args[0]
	if isConstant(head) {
		return false
	}
	if q.Text == "" {
		return isCombined(head)
	}
	formulas, key := q.Formulas(), algebra.Key(head)
	alone := formulas.Alone[key]
	switch {
	case len(algebra.Pending(head)) > 0 && head.Kind == expr.Sum: // x + 0
		return false
	case key == q.Target():
		return true
	case formulas.Keys[algebra.Key(n)]:
		return false
	case head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }) &&
		(head.Kind != expr.Product || head.Args[0].Name == "prime"):
		return alone || q.AsksSlope()
	}
	return alone || isCombined(head) && (head.Kind == expr.Sum && q.LastHas("sum", "total", "together", "combined", "+",
		"add") || head.Kind == expr.Product && q.LastHas("product", "times")) ||
		isSine(q, head) || isCircular(q, key)
}

// isCombined reports whether n is a sum or a product of different variables, as in "a + b = 5".
func isCombined(n *expr.Node) bool {
	if n.Kind != expr.Sum && n.Kind != expr.Product || algebra.Variables(n) < 2 || algebra.Variables(n) != len(n.Args) {
		return false
	}
	return !slices.ContainsFunc(n.Args, func(m *expr.Node) bool { return m.Kind != expr.Symbol })
}

// isCircular reports whether key is that of the formula for the area, circumference or volume of a round
// body and the question asks for that quantity.
func isCircular(q *question.Question, key string) bool {
	for _, row := range [][2]string{{"area", `\pi r^2`}, {"area", `4\pi r^2`}, {"circumference", `2\pi r`},
		{"circumference", `\pi d`}, {"volume", `\frac{4}{3}\pi r^3`}, {"volume", `\pi r^2 h`}, {"volume",
			`\frac{1}{3}\pi r^2 h`}} {
		if n, ok := expr.Parse(row[1], expr.Mode{}); ok && q.LastHas(row[0]) && algebra.Key(n) == key {
			return true
		}
	}
	return false
}

// isSine reports whether n is a trigonometric function of a variable and the question asks for
// it in words.
func isSine(q *question.Question, n *expr.Node) bool {
	if n.Kind != expr.Call || len(n.Args) != 1 || n.Args[0].Kind != expr.Symbol {
		return false
	}
	word := map[string]string{"sin": "sine", "cos": "cosine", "tan": "tangent", "cot": "cotangent", "sec": "secant",
		"csc": "cosecant"}[n.Name]
	return word != "" && q.LastHas(" "+word+" of")
}
