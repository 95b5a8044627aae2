package answer

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// maxAnswer is the longest answer, in bytes, that is parsed. Longer answers are
// compared only as text.
const maxAnswer = 4096

// Equal reports whether got is the same answer as want. Both are bare answers in LaTeX
// or plain text: "\frac{1}{2}", "$0.50", "x = 1/2". Units, currencies and the name
// before an equals sign may appear on one side only.
func Equal(want, got string) bool {
	w, g := Clean(want), Clean(got)
	if w == "" || g == "" {
		return false
	}
	if w == g || len(w) <= maxAnswer && len(g) <= maxAnswer && compact(w) == compact(g) {
		return true
	}
	if len(w) > maxAnswer || len(g) > maxAnswer {
		return false
	}
	if letter, ok := Choice(w); ok {
		other, ok := Choice(g)
		if lower := BareText(g); len(lower) == 1 && lower[0] >= 'a' {
			other, ok = Choice(strings.ToUpper(lower))
		}
		return ok && letter == other
	}
	if saysNothing(w) && saysNothing(g) {
		return true
	}
	if same, known := measures(w, g); known {
		return same
	}
	if sameExpressions(w, g) || sameWords(w, g) {
		return true
	}
	rest, ok := chosen(g)
	return ok && sameExpressions(w, rest)
}

// sameExpressions compares w and g as expressions. It reads commas between digits the
// same way on both sides.
func sameExpressions(w, g string) bool {
	modes := []expr.Mode{{Thousands: true}}
	if strings.ContainsAny(w+g, ",") || strings.Contains(w+g, " ") {
		modes = append(modes, expr.Mode{})
	}
	for _, mode := range modes {
		a, okA := read(w, mode)
		b, okB := read(g, mode)
		if okA && okB && newComparer().same(a, b) {
			return true
		}
	}
	if decimalComma(w) == decimalComma(g) || !strings.Contains(w+g, ".") {
		return false
	}
	a, okA := expr.Parse(w, expr.Mode{Decimal: decimalComma(w)})
	b, okB := expr.Parse(g, expr.Mode{Decimal: decimalComma(g)})
	return okA && okB && newComparer().same(a, b)
}

// read parses s. A number in words parses as that number.
func read(s string, mode expr.Mode) (*expr.Node, bool) {
	n, ok := expr.Parse(s, mode)
	if ok && n.Kind != expr.Text && n.Kind != expr.Label {
		return n, true
	}
	if digits, spelt := Spelled(s); spelt {
		return expr.Parse(digits, mode)
	}
	return n, ok
}

// decimalComma reports whether s can only be a number with a decimal comma or two
// numbers: 1,5 or 0,25.
func decimalComma(s string) bool {
	whole, rest, found := strings.Cut(strings.TrimPrefix(s, "-"), ",")
	return found && whole != "" && rest != "" && len(rest) != 3 && strings.Trim(whole+rest, "0123456789") == ""
}

// comparer compares expressions within a fixed budget of nodes.
type comparer struct {
	left    int // nodes still allowed
	algebra *algebra.Comparer
}

// maxCompared bounds the nodes visited for one pair of answers.
const maxCompared = 1 << 17

func newComparer() *comparer { return &comparer{left: maxCompared, algebra: algebra.NewComparer()} }

// same reports whether g, from a response, equals w, the reference answer.
func (c *comparer) same(w, g *expr.Node) bool {
	c.left -= w.Size() + g.Size()
	if c.left < 0 {
		return false
	}
	if w.Kind == expr.Label || g.Kind == expr.Label {
		return c.labels(w, g)
	}
	if w.Kind == expr.Unit || g.Kind == expr.Unit {
		return c.units(w, g)
	}
	if w.Kind == expr.Text || g.Kind == expr.Text {
		pieces, ok := c.sets(w, g)
		return ok && pieces || sameText(w, g)
	}
	w, g = flatten(w), flatten(g)
	switch {
	case w.Kind == expr.Relation && g.Kind == expr.Relation:
		return c.relations(w, g)
	case w.Kind == expr.Relation || g.Kind == expr.Relation:
		return c.relation(w, g)
	}
	if pieces, ok := c.sets(w, g); ok {
		return pieces
	}
	if isCollection(w) || isCollection(g) {
		return c.collections(w, g)
	}
	switch {
	case w.Kind == expr.Matrix || g.Kind == expr.Matrix:
		return w.Kind == g.Kind && c.rows(w.Args, g.Args)
	case w.Kind == expr.Ratio || g.Kind == expr.Ratio:
		return c.ratios(w, g)
	case w.Kind == expr.Number && g.Kind == expr.Number && (w.Base != "" || g.Base != ""):
		return w.Digits == g.Digits && w.Places == 0 && g.Places == 0 && (w.Base == g.Base || w.Base == "" || g.Base == "")
	}
	return c.algebra.Same(w, g)
}

// all compares the two lists pair by pair.
func (c *comparer) all(w, g []*expr.Node) bool {
	if len(w) != len(g) {
		return false
	}
	for i := range w {
		if !c.same(w[i], g[i]) {
			return false
		}
	}
	return true
}

// rows compares matrices cell by cell.
func (c *comparer) rows(w, g []*expr.Node) bool {
	if len(w) != len(g) {
		return false
	}
	for i := range w {
		if !c.all(w[i].Args, g[i].Args) {
			return false
		}
	}
	return true
}

// labels compares words and what follows them. If only one side has words, they
// introduce the answer, as in "Area: 5".
func (c *comparer) labels(w, g *expr.Node) bool {
	if w.Kind == expr.Label && g.Kind == expr.Label {
		a, b := words(w.Name), words(g.Name)
		return (len(a) == 0 || len(b) == 0 || sameList(a, b)) && c.same(w.Args[0], g.Args[0])
	}
	if w.Kind == expr.Label {
		return len(words(w.Name)) == 0 && c.same(w.Args[0], g) || isTitle(w.Name) && c.same(w.Args[0], g)
	}
	return !slices.Contains(words(g.Name), "not") && c.same(w, g.Args[0])
}

// isTitle reports whether words before a number are likely its name rather than part of
// the answer, as the month in "October 30" is.
func isTitle(name string) bool {
	return name == strings.ToLower(name) || strings.HasSuffix(strings.ToLower(name), "answer")
}

// ratios treats 3:5, 6:10 and 3/5 as equal.
func (c *comparer) ratios(w, g *expr.Node) bool {
	if w.Kind == g.Kind && c.all(w.Args, g.Args) {
		return true
	}
	quotient := func(n *expr.Node) *expr.Node {
		if n.Kind != expr.Ratio {
			return n
		}
		if len(n.Args) != 2 {
			return nil
		}
		return algebra.Quotient(n.Args[0], n.Args[1])
	}
	if w.Kind == expr.Ratio && !c.algebra.Coprime(w.Args) { // 9:24 is a time
		return false
	}
	a, b := quotient(w), quotient(g)
	return a != nil && b != nil && c.algebra.Same(a, b)
}

func sameText(w, g *expr.Node) bool {
	name := func(n *expr.Node) string {
		if n.Kind == expr.Text || n.Kind == expr.Symbol {
			return n.Name
		}
		return ""
	}
	a, b := words(name(w)), words(name(g))
	return len(a) > 0 && sameList(a, b)
}
