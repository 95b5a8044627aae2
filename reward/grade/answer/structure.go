package answer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// maxPairs is the number of pairs of items that are compared to match two lists in any order.
const maxPairs = 1 << 13

// flatten turns a node with several values, such as x ± 1, into a list, and multiplies matrices out. It
// also drops brackets around a single value.
func flatten(n *expr.Node) *expr.Node {
	switch {
	case n.Kind == expr.List:
		all := branches(n.Args)
		if len(all) == 1 {
			return flatten(all[0])
		}
		return &expr.Node{Kind: expr.List, Args: all}
	case n.Kind == expr.Bracket && n.Open == "{":
		c := *n
		c.Args = branches(n.Args)
		if len(c.Args) == 1 {
			return flatten(c.Args[0])
		}
		return &c
	case isNested(n):
		return &expr.Node{Kind: expr.Matrix, Args: n.Args}
	case n.Kind == expr.Bracket:
		if len(n.Args) == 1 && (n.Open == "(" || n.Open == "[") {
			return flatten(n.Args[0])
		}
		return n
	case n.Kind == expr.Product:
		if m := multiplied(n); m != nil {
			return m
		}
	case n.Kind == expr.Matrix && len(n.Args) == 1 && len(n.Args[0].Args) == 1:
		return n.Args[0].Args[0]
	}
	if n.Kind < expr.Bracket {
		if both := n.Branches(); len(both) > 1 {
			return &expr.Node{Kind: expr.List, Args: both}
		}
	}
	return n
}

// isNested reports whether n is a matrix in nested brackets: [[1, 2], [3, 4]].
func isNested(n *expr.Node) bool {
	return n.Kind == expr.Bracket && n.Open == "[" && len(n.Args) > 1 &&
		!slices.ContainsFunc(n.Args, func(row *expr.Node) bool {
			return row.Kind != expr.Bracket || row.Open != "[" || len(row.Args) != len(n.Args[0].Args) ||
				len(row.Args) == 0
		})
}

// branches returns the readings of all args: two of each that contains a ±.
func branches(args []*expr.Node) []*expr.Node {
	var all []*expr.Node
	for _, arg := range args {
		all = append(all, arg.Branches()...)
	}
	return all
}

// multiplied returns the product of matrices and numbers, or nil if it is undefined or
// has no matrix.
func multiplied(n *expr.Node) *expr.Node {
	var m *expr.Node
	var scalars []*expr.Node
	for _, arg := range n.Args {
		switch {
		case arg.Kind != expr.Matrix:
			scalars = append(scalars, arg)
		case m == nil:
			m = arg
		default:
			if m = algebra.MatrixProduct(m, arg); m == nil {
				return nil
			}
		}
	}
	if m == nil {
		return nil
	}
	return algebra.Scaled(m, scalars)
}

// isCollection reports whether n is a list, a set or a tuple.
func isCollection(n *expr.Node) bool {
	return n.Kind == expr.List || n.Kind == expr.Bracket
}

// items returns the items of a list, a set, a tuple or a matrix of one row or column.
func items(n *expr.Node) []*expr.Node {
	if n.Kind != expr.Matrix {
		return n.Args
	}
	if len(n.Args) == 1 {
		return n.Args[0].Args
	}
	var column []*expr.Node
	for _, row := range n.Args {
		if len(row.Args) != 1 {
			return nil
		}
		column = append(column, row.Args[0])
	}
	return column
}

// ordered reports whether the order of the items of n matters: n is a tuple, an interval or a matrix.
func ordered(n *expr.Node) bool {
	return n.Kind == expr.Matrix || n.Kind == expr.Bracket && n.Open != "{"
}

// collections compares lists, sets and tuples. At least one of w and g must be one.
func (c *comparer) collections(w, g *expr.Node) bool {
	if !isCollection(w) && w.Kind != expr.Matrix || !isCollection(g) && g.Kind != expr.Matrix {
		return false
	}
	if (w.Kind == expr.Bracket || w.Kind == expr.Matrix) && g.Kind == expr.Bracket && ordered(w) != ordered(g) ||
		ordered(w) && c.question.Text != "" && repeats(g) {
		return false
	}
	if g.Kind == expr.List && w.Kind == expr.Bracket && len(w.Args) == 2 &&
		c.question.Asks("<", ">", `\le`, `\ge`, "inequalit", "interval", "domain", "range of") {
		return false
	}
	if w.Kind == expr.List && g.Kind == expr.Bracket && g.Open == "(" && c.question.Text != "" &&
		inAnyOrder(c.question, false) &&
		!c.question.Asks("pair", "point", "coordinat", "tuple", "triple", "vector", "system", "(x") {
		return false
	}
	if w.Kind == expr.List && isSpan(g) || g.Kind == expr.List && isSpan(w) {
		return false
	}
	a, b := items(w), items(g)
	if ordered(w) || ordered(g) || w.Kind == expr.List && g.Kind == expr.List &&
		!inAnyOrder(c.question, !slices.ContainsFunc(a, func(n *expr.Node) bool { return n.Kind != expr.Bracket })) {
		if w.Kind == expr.Bracket && g.Kind == expr.Bracket && len(a) == 2 && !sameBrackets(w, g) {
			return false
		}
		return len(a) > 0 && c.all(a, b)
	}
	if slices.ContainsFunc(a, func(n *expr.Node) bool { return n.Kind == expr.Text || n.Kind == expr.Ratio }) {
		return c.all(a, b)
	}
	restA, restB := unmatched(a, b), unmatched(b, a)
	if len(restA)*len(b)+len(restB)*len(a) > maxPairs {
		return false
	}
	match := func(x, y *expr.Node) bool { return isSet(x) == isSet(y) && c.same(x, y) } // {2} is not 2
	return !slices.ContainsFunc(restA, func(x *expr.Node) bool {
		return !slices.ContainsFunc(b, func(y *expr.Node) bool { return match(x, y) })
	}) && !slices.ContainsFunc(restB, func(y *expr.Node) bool {
		return !slices.ContainsFunc(a, func(x *expr.Node) bool { return match(x, y) })
	})
}

// repeats reports whether n is a list of values of one unknown: x = 3, x = -1.
func repeats(n *expr.Node) bool {
	return n.Kind == expr.List && len(n.Args) > 1 && !slices.ContainsFunc(n.Args, func(m *expr.Node) bool {
		return m.Kind != expr.Relation || m.Args[0].Kind != expr.Symbol || !m.Args[0].Is(n.Args[0].Args[0].Name)
	})
}

func isSet(n *expr.Node) bool { return n.Kind == expr.Bracket && n.Open == "{" }

// unmatched returns the items of list whose key no item of other has.
func unmatched(list, other []*expr.Node) []*expr.Node {
	keys := map[string]bool{}
	for _, n := range other {
		keys[algebra.Key(n)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(n *expr.Node) bool { return keys[algebra.Key(n)] })
}

// assigned returns what a list of equations such as "y = -1, x = 3" assigns, as a tuple in the
// order of the names, or as a list of such tuples: "x = 1, y = 2 or x = 3, y = 4". ok is false
// if n is no such list.
func assigned(q *question.Question, n *expr.Node) (tuple *expr.Node, ok bool) {
	n = unzipped(n)
	if n.Kind != expr.List {
		return nil, false
	}
	values, names := map[string][]*expr.Node{}, []string{}
	for _, m := range n.Args {
		if m.Kind != expr.Relation || len(m.Ops) != 1 || m.Ops[0] != "=" || m.Args[0].Kind != expr.Symbol {
			return nil, false
		}
		name := m.Args[0].Name
		if values[name] == nil {
			names = append(names, name)
		}
		values[name] = append(values[name], m.Args[1])
	}
	base, _, indexed := strings.Cut(names[0], "_")
	if indexed && !slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, base+"_") }) {
		return nil, false // x_1 and x_2 are values of one unknown
	}
	rounds := len(values[names[0]])
	if len(names) < 2 || len(names)*rounds != len(n.Args) {
		return nil, false
	}
	for i, m := range n.Args { // each round assigns each name once
		if first := n.Args[i/len(names)*len(names) : i]; slices.ContainsFunc(first,
			func(other *expr.Node) bool { return other.Args[0].Name == m.Args[0].Name }) {
			return nil, false
		}
	}
	names = q.Ordered(names)
	list := &expr.Node{Kind: expr.List}
	for k := range rounds {
		t := &expr.Node{Kind: expr.Bracket, Open: "(", Close: ")"}
		for _, name := range names {
			t.Args = append(t.Args, values[name][k])
		}
		list.Args = append(list.Args, t)
	}
	if rounds == 1 {
		return list.Args[0], true
	}
	return list, true
}

// unzipped returns the equation of two tuples as a list of equations: x = 3, y = -1 for
// (x, y) = (3, -1).
func unzipped(n *expr.Node) *expr.Node {
	if n.Kind != expr.Relation || len(n.Ops) != 1 || n.Ops[0] != "=" {
		return n
	}
	names, values := n.Args[0], n.Args[1]
	if names.Kind != expr.Bracket || values.Kind != expr.Bracket || len(names.Args) != len(values.Args) ||
		len(names.Args) == 0 {
		return n
	}
	list := &expr.Node{Kind: expr.List}
	for i, name := range names.Args {
		list.Args = append(list.Args, &expr.Node{Kind: expr.Relation, Ops: n.Ops,
			Args: []*expr.Node{name, values.Args[i]}})
	}
	return list
}

// inAnyOrder reports whether the order of a list does not matter. Without a question it never matters.
// Otherwise the list must hold tuples, or solutions, values or members that the question asks for, and the
// question must not ask for an order.
func inAnyOrder(q *question.Question, tuples bool) bool {
	return q.Text == "" || (tuples || q.Asks("all ", "solution", "root", "solve", "values", "zeros of", "which",
		"divisor", "factors", "two numbers", "elements", " set ", "integers", "possible", "prime")) &&
		!q.Asks("in that order", "respectively", "scending", "creasing order", "sort ", "in order", "and then",
			" to largest", " to smallest", " to greatest", " to least", "lphabetical")
}

// isSpan reports whether n can only be an interval.
func isSpan(n *expr.Node) bool {
	return n.Kind == expr.Bracket && len(n.Args) == 2 && ((n.Open == "[") != (n.Close == "]") || n.Open == "[")
}

// sameBrackets compares the brackets of two tuples. Those of ⟨1, 2⟩ count as parentheses.
func sameBrackets(w, g *expr.Node) bool {
	round := strings.NewReplacer("<", "(", ">", ")")
	return round.Replace(w.Open+w.Close) == round.Replace(g.Open+g.Close)
}

// relation compares w and g if exactly one of them is a relation.
func (c *comparer) relation(w, g *expr.Node) bool {
	if pieces, ok := c.sets(w, g); ok {
		return pieces
	}
	if g.Kind == expr.Relation {
		if c.question.Formulas().Keys[algebra.Key(g)] {
			return c.because(Echo)
		}
		if isCollection(w) && !slices.ContainsFunc(g.Ops, func(op string) bool { return op != "<" }) &&
			c.question.Asks("order", "ascending", "smallest to", "least to") { // 1 < 2 < 3
			return c.all(w.Args, g.Args)
		}
		return slices.ContainsFunc(c.stated(g), func(v *expr.Node) bool { return c.match(w, v) })
	}
	return slices.ContainsFunc(values(w), func(v *expr.Node) bool { return c.match(v, g) })
}

// values returns the values that an equation of the reference answer gives the name on
// its left side: the last of a chain, and both sides of an approximation sign.
func values(n *expr.Node) []*expr.Node {
	end := len(n.Ops)
	for i, op := range n.Ops {
		switch {
		case op == "~" && i > 0:
			end = min(end, i)
		case op == "in" && len(n.Ops) == 1:
			return n.Args[1:]
		case op != "=" && op != "~" && op != "equiv":
			return nil
		}
	}
	found := slices.Clone(n.Args[end : end+1])
	if last := len(n.Args) - 1; end < last {
		found = append(found, n.Args[last])
	}
	if isConstant(n.Args[0]) {
		return append(found, n.Args[0])
	}
	if !isName(n.Args[0]) {
		return nil
	}
	return found
}

// stated returns the values that a chain of equations in a response states: those after
// a name, or all if it does not begin with one. It returns none if they differ.
func (c *comparer) stated(n *expr.Node) []*expr.Node {
	if len(n.Ops) == 1 && n.Ops[0] == "in" {
		return n.Args[1:]
	}
	if !equations(n) {
		c.because(Altered)
		return nil
	}
	all := n.Args
	if len(all) == 2 && isConstant(all[0]) && all[1].Kind == expr.Symbol && isName(all[1]) { // 3 = x
		all = []*expr.Node{all[1], all[0]}
	}
	if len(all) > 1 && !isConstant(all[0]) && misnames(c.question, all[0]) {
		c.because(Altered)
		return nil
	}
	named := len(all) > 1 && (isName(all[0]) || defines(c.question, n) ||
		isPowerOfName(all[0]) && all[1].Kind == expr.Matrix)
	for k := len(n.Ops) - 1; k >= 0; k-- {
		if n.Ops[k] == "equiv" { // 20 ≡ 6 (mod 7)
			if !isConstant(n.Args[0]) && c.question.Text != "" && !c.question.Asks("mod", "remainder") {
				c.because(Unfinished)
				return nil
			}
			all, named = n.Args[k+1:], false
			break
		}
	}
	for first := named; len(all) > 1 && (first || isName(all[0])); first = false {
		all = all[1:]
	}
	for named && len(all) > 1 && !isConstant(all[0]) && isConstant(all[len(all)-1]) { // C = 2πr = 6π
		all = all[1:]
	}
	elided := func(n *expr.Node) bool { return n.Has(func(m *expr.Node) bool { return m.Is("ldots") }) }
	for len(all) > 1 && (algebra.Opaque(all[0]) && !algebra.Opaque(all[1]) || elided(all[0])) { // an integral = 8
		all = all[1:]
	}
	if len(all) > 1 && isConstant(all[len(all)-1]) && !isConstant(all[0]) && !algebra.Opaque(all[0]) { // 0x = 0
		c.because(Unfinished)
		return nil
	}
	for i := range all[1:] {
		if !c.agree(all[i], all[i+1]) {
			c.because(Several)
			return nil
		}
	}
	return all
}

// inTen returns the value of a whole number that is written in any base, or -1.
func inTen(n *expr.Node) int64 {
	base, err := strconv.Atoi(cmp.Or(n.Base, "10"))
	if err != nil || base < 2 || base > 36 {
		return -1
	}
	v, err := strconv.ParseInt(n.Digits, base, 64)
	if err != nil {
		return -1
	}
	return v
}

// isPowerOfName reports whether n is a power of a matrix or of its name: A^2.
func isPowerOfName(n *expr.Node) bool {
	return n.Kind == expr.Power && (n.Args[0].Kind == expr.Matrix ||
		n.Args[0].Kind == expr.Symbol && strings.ToUpper(n.Args[0].Name) == n.Args[0].Name)
}

// agree reports whether b restates a: the values are equal, or one is the other, rounded (algebra.Rounds).
func (c *comparer) agree(a, b *expr.Node) bool {
	if a.Kind == expr.Number && b.Kind == expr.Number && a.Base != b.Base {
		return inTen(a) == inTen(b)
	}
	defer func(loose bool) { c.loose = loose }(c.loose)
	c.loose = true
	if c.question.Asks("radian", "degree") && (isDegrees(a) && hasPi(b) || hasPi(a) && isDegrees(b)) {
		return c.same(radians(a), radians(b))
	}
	return c.same(a, b) || c.same(b, a) || algebra.Rounds(a, b) || algebra.Rounds(b, a) ||
		a.Kind == expr.Number && b.Kind == expr.Number && c.question.Asks("nearest", "round") && algebra.Within(a, b)
}

func hasPi(n *expr.Node) bool { return n.Has(func(m *expr.Node) bool { return m.Is("pi") }) }

func isDegrees(n *expr.Node) bool { return n.Kind == expr.Unit && n.Name == "deg" }

// radians returns the value of an angle in radians, without its unit.
func radians(n *expr.Node) *expr.Node {
	switch {
	case isDegrees(n):
		return algebra.Times(expr.Multiply(n.Args[0], expr.Named("pi")), 1, 180)
	case n.Kind == expr.Unit:
		return n.Args[0]
	}
	return n
}

// isConstant reports whether n has no variable, no words, no function that only a letter names, such as f,
// and no structure such as a list.
func isConstant(n *expr.Node) bool {
	return !n.Has(func(m *expr.Node) bool {
		return m.IsVariable() || m.Kind == expr.Text || m.Kind >= expr.Bracket && m.Kind != expr.Unit ||
			m.Kind == expr.Call && (len(m.Name) == 1 || strings.Contains(m.Name, "_"))
	})
}

// isCapital reports whether n is a capital letter.
func isCapital(n *expr.Node) bool {
	return n.Kind == expr.Symbol && len(n.Name) == 1 && strings.ToUpper(n.Name) == n.Name
}

// isName reports whether n names something rather than states its value: x, f(2), P(A),
// AB, |AB|, (x, y), a : b.
func isName(n *expr.Node) bool {
	switch n.Kind {
	case expr.Symbol:
		return n.IsVariable() && !n.Is("infty")
	case expr.Text:
		return !words.Alters(n.Name)
	case expr.Label:
		return !words.Alters(n.Name) && isName(n.Args[0])
	case expr.Unit:
		return isName(n.Args[0])
	case expr.Call:
		return !algebra.Elementary(n.Name) && n.Name != "prime" &&
			(n.Name != "conj" || n.Args[0].Kind == expr.Symbol) ||
			n.Name == "abs" && n.Args[0].Kind == expr.Product && isName(n.Args[0])
	case expr.Bracket, expr.Ratio, expr.List:
		return !slices.ContainsFunc(n.Args, func(m *expr.Node) bool { return !isName(m) })
	case expr.Product: // of points, as in AB and P(A)
		if len(n.Args) == 2 && (n.Args[0].Is("P") || n.Args[0].Is("E")) && n.Args[1].Kind != expr.Number &&
			n.Args[1].Kind != expr.Sum && n.Args[1].Kind != expr.Power {
			return true
		}
		if len(n.Args) == 2 && n.Args[0].Kind == expr.Symbol && n.Args[1].Kind == expr.Symbol &&
			(n.Args[1].Is("angle") || isCapital(n.Args[0]) && strings.Contains("xtnsz", n.Args[1].Name)) {
			return true // F(x)
		}
		if len(n.Args) == 2 && isCapital(n.Args[0]) && n.Args[1].Kind == expr.Number {
			return true // P(2)
		}
		if strings.HasSuffix(n.Args[0].Name, "phi") || n.Args[0].Is("tau") || n.Args[0].Is("sigma") ||
			n.Args[0].Is("mu") {
			return len(n.Args) == 2 // a function of number theory
		}
		return len(n.Args) <= 5 && !slices.ContainsFunc(n.Args, func(m *expr.Node) bool {
			return !isName(m) || m.Kind == expr.Symbol && strings.ToUpper(m.Name) != m.Name
		})
	}
	return false
}

// relations compares equations and inequalities.
func (c *comparer) relations(w, g *expr.Node) bool {
	if equations(w) && equations(g) {
		a := values(w)
		if len(a) > 0 && c.names(w.Args[0], g.Args[0]) &&
			slices.ContainsFunc(c.stated(g), func(v *expr.Node) bool { return c.match(a[0], v) }) {
			return true
		}
		if len(w.Args) != 2 || len(g.Args) != 2 || algebra.Variables(w) == 0 || !balanced(w) || !balanced(g) ||
			!c.proportional(w, g, false) {
			return false
		}
		if isName(w.Args[0]) && isConstant(w.Args[1]) && !isName(g.Args[0]) {
			return c.because(Unfinished) // 2x + 1 = 7 for x = 3
		}
		return true
	}
	if pieces, ok := c.sets(w, g); ok {
		return pieces
	}
	w, g = ascending(w), ascending(g)
	if !slices.Equal(w.Ops, g.Ops) {
		return false
	}
	if c.all(w.Args, g.Args) {
		return true
	}
	return len(w.Ops) == 1 && (w.Ops[0] == "<" || w.Ops[0] == "<=") && c.proportional(w, g, true)
}

// names compares the left sides of two equations. Words match any name.
func (c *comparer) names(w, g *expr.Node) bool {
	return w.Kind == expr.Text || g.Kind == expr.Text || g.Is("y") && w.Kind == expr.Call || w.Is("y") &&
		g.Kind == expr.Call && len(g.Name) == 1 &&
		!slices.ContainsFunc(g.Args, func(m *expr.Node) bool { return m.Is("y") }) || c.same(w, g)
}

// equations reports whether all signs of a chain of relations state equality, exact or approximate.
func equations(n *expr.Node) bool {
	return !slices.ContainsFunc(n.Ops, func(op string) bool { return op != "=" && op != "~" && op != "equiv" })
}

// balanced reports whether both sides of n are single values.
func balanced(n *expr.Node) bool {
	return !slices.ContainsFunc(n.Args, func(m *expr.Node) bool { return m.Kind > expr.Call || m.Kind == expr.Text })
}

// proportional reports whether the differences between the two sides of w and of g are equal up to a
// constant factor. If positive is set, the factor must be positive.
func (c *comparer) proportional(w, g *expr.Node, positive bool) bool {
	sign, ok := c.algebra.Proportional(algebra.Difference(w.Args[1], w.Args[0]),
		algebra.Difference(g.Args[1], g.Args[0]))
	return ok && (sign > 0 || !positive)
}

// ascending rewrites > as <.
func ascending(n *expr.Node) *expr.Node {
	if !slices.Contains(n.Ops, ">") && !slices.Contains(n.Ops, ">=") {
		return n
	}
	c := *n
	c.Ops, c.Args = slices.Clone(n.Ops), slices.Clone(n.Args)
	slices.Reverse(c.Ops)
	slices.Reverse(c.Args)
	for i, op := range c.Ops {
		if turned, ok := map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}[op]; ok {
			c.Ops[i] = turned
		}
	}
	return &c
}
