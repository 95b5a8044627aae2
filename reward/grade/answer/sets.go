package answer

import (
	"cmp"
	"math"
	"slices"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// interval is a piece of the real line. A nil end is infinite.
type interval struct {
	from, to           *expr.Node
	withFrom, withTo   bool
	fromValue, toValue float64
	incomparable       bool // an end has no numeric value
	explicit           bool // it has no other reading; (1, 2) may be a point
}

// sets compares w and g as sets of real numbers if both can be such sets and at least
// one has no other reading; otherwise ok is false.
func (c *comparer) sets(w, g *expr.Node) (same, ok bool) {
	if w.Kind == expr.Bracket && w.Open == "(" && w.Close == ")" && g.Kind == expr.Relation &&
		c.question.Asks("vertex", "point", "coordinate", "center", "ordered pair", "vector") {
		return false, false
	}
	a, okA := pieces(w)
	b, okB := pieces(g)
	if !okA || !okB {
		return false, false
	}
	explicit := func(p interval) bool { return p.explicit }
	if !slices.ContainsFunc(a, explicit) && !slices.ContainsFunc(b, explicit) {
		return false, false
	}
	if w.Kind == expr.Relation && g.Kind == expr.Relation &&
		!slices.ContainsFunc(append(slices.Clone(a), b...), func(p interval) bool { return p.incomparable }) {
		if x, y := subject(w), subject(g); x != nil && y != nil && !c.same(x, y) {
			return false, true
		}
	}
	if len(a) != len(b) {
		return false, true
	}
	end := func(x, y *expr.Node, withX, withY bool) bool {
		if x == nil || y == nil {
			return x == nil && y == nil && (withX || !withY)
		}
		return withX == withY && c.same(x, y)
	}
	for i := range a {
		if !end(a[i].from, b[i].from, a[i].withFrom, b[i].withFrom) ||
			!end(a[i].to, b[i].to, a[i].withTo, b[i].withTo) {
			return false, true
		}
	}
	return true, true
}

// subject returns the quantity that an inequality constrains.
func subject(n *expr.Node) *expr.Node {
	for _, arg := range n.Args {
		if !isConstant(arg) && arg.Kind != expr.Bracket && !isInfinite(arg) {
			if arg.Kind == expr.Call && arg.Name == "abs" &&
				arg.Args[0].Kind == expr.Symbol { // folded into two intervals
				return arg.Args[0]
			}
			return arg
		}
	}
	return nil
}

// isInfinite reports whether n is ∞ or a product with it, such as -∞.
func isInfinite(n *expr.Node) bool {
	return n.Is("infty") || n.Kind == expr.Product && len(n.Args) == 2 && n.Args[1].Is("infty")
}

// span returns the interval between two ends.
func span(from, to *expr.Node, withFrom, withTo bool) interval {
	p := interval{from: from, to: to, withFrom: withFrom, withTo: withTo, fromValue: math.Inf(-1), toValue: math.Inf(1),
		explicit: true}
	if from != nil && isInfinite(from) && from.Kind == expr.Product { // -∞
		p.from = nil
	}
	if to != nil && to.Is("infty") {
		p.to = nil
	}
	var ok bool
	if p.from != nil {
		p.fromValue, ok = algebra.Approximate(p.from)
		p.incomparable = p.incomparable || !ok
	}
	if p.to != nil {
		p.toValue, ok = algebra.Approximate(p.to)
		p.incomparable = p.incomparable || !ok
	}
	return p
}

// pieces returns the intervals whose union is n, left to right.
func pieces(n *expr.Node) ([]interval, bool) {
	found, ok := unsorted(n)
	if !ok {
		return nil, false
	}
	if !slices.ContainsFunc(found, func(p interval) bool { return p.incomparable }) {
		slices.SortStableFunc(found, func(a, b interval) int { return cmp.Compare(a.fromValue, b.fromValue) })
	}
	return found, true
}

// unsorted returns the intervals whose union is n, in the order in which n names them. It returns false if
// n is no set of real numbers that it understands.
func unsorted(n *expr.Node) ([]interval, bool) {
	switch n.Kind {
	case expr.Bracket:
		if n.Open == "{" { // set-builder: the args are its conditions
			return unsorted(&expr.Node{Kind: expr.List, Args: n.Args})
		}
		if len(n.Args) != 2 || n.Open != "(" && n.Open != "[" || n.Close != ")" && n.Close != "]" {
			return nil, false
		}
		p := span(n.Args[0], n.Args[1], n.Open == "[", n.Close == "]")
		p.explicit = n.Open != "(" || n.Close != ")" || p.from == nil || p.to == nil
		return []interval{p}, true
	case expr.Symbol:
		if n.Name == "mathbb R" || n.Name == "R" {
			return []interval{span(nil, nil, false, false)}, true
		}
	case expr.Text:
		if name := words.Of(n.Name); slices.Equal(name, []string{"all", "real", "numbers"}) ||
			slices.Equal(name, []string{"all", "reals"}) {
			return []interval{span(nil, nil, false, false)}, true
		}
	case expr.Call:
		switch {
		case n.Name == "cup":
			return union(n.Args)
		case n.Name == "cap" && len(n.Args) == 2 && n.Args[0].Is("mathbb R"):
			return unsorted(n.Args[1])
		case n.Name == `\` && len(n.Args) == 2:
			return without(n.Args[0], n.Args[1])
		}
	case expr.List:
		conditions := slices.DeleteFunc(slices.Clone(n.Args), anyNumber)
		if len(conditions) > 0 && !slices.ContainsFunc(conditions,
			func(m *expr.Node) bool { return m.Kind != expr.Relation || equations(m) }) {
			return halves(conditions)
		}
	case expr.Relation:
		return inequality(n)
	}
	return nil, false
}

// union returns the intervals of all args. A set {a, b} adds one interval, of a single point, for each of
// its items.
func union(args []*expr.Node) ([]interval, bool) {
	var all []interval
	for _, arg := range args {
		if arg.Kind == expr.Bracket && arg.Open == "{" {
			for _, x := range arg.Args {
				all = append(all, span(x, x, true, true))
			}
			continue
		}
		some, ok := unsorted(arg)
		if !ok {
			return nil, false
		}
		all = append(all, some...)
	}
	for i := range all {
		all[i].explicit = true
	}
	return all, true
}

// without returns the real line minus some points or an interval. ok is false if line is not the whole real
// line.
func without(line, points *expr.Node) (rest []interval, ok bool) {
	whole, ok := unsorted(line)
	if !ok || len(whole) != 1 || whole[0].from != nil || whole[0].to != nil ||
		points.Kind != expr.Bracket && points.Kind > expr.Call {
		return nil, false
	}
	if p, ok := unsorted(points); ok && len(p) == 1 && points.Open != "{" { // the line without an interval
		return []interval{span(nil, p[0].from, false, !p[0].withFrom), span(p[0].to, nil, !p[0].withTo, false)}, true
	}
	holes := []*expr.Node{points}
	if points.Kind == expr.Bracket {
		holes = flatten(points).Args
		if holes == nil {
			holes = []*expr.Node{flatten(points)}
		}
	}
	return between(holes), true
}

// between returns the open intervals between points and beyond them.
func between(points []*expr.Node) []interval {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b *expr.Node) int {
		x, _ := algebra.Approximate(a)
		y, _ := algebra.Approximate(b)
		return cmp.Compare(x, y)
	})
	var all []interval
	var last *expr.Node
	for _, p := range points {
		all = append(all, span(last, p, false, false))
		last = p
	}
	return append(all, span(last, nil, false, false))
}

// anyNumber reports whether a condition only requires x to be real.
func anyNumber(n *expr.Node) bool {
	return n.Kind == expr.Relation && len(n.Ops) == 1 && n.Ops[0] == "in" &&
		(n.Args[1].Is("mathbb R") || n.Args[1].Is("R"))
}

// halves returns the union of two half lines or, if they overlap, their intersection,
// minus the points excluded by each ≠.
func halves(args []*expr.Node) ([]interval, bool) {
	var holes, rest []*expr.Node
	for _, arg := range args {
		if len(arg.Ops) == 1 && arg.Ops[0] == "!=" {
			holes = append(holes, arg.Args[1])
		} else {
			rest = append(rest, arg)
		}
	}
	if len(rest) == 0 {
		return between(holes), true
	}
	all, ok := union(rest)
	if !ok {
		return nil, false
	}
	if len(all) == 2 && all[1].from == nil {
		all[0], all[1] = all[1], all[0]
	}
	if len(all) == 2 && all[0].from == nil && all[1].to == nil && all[0].to != nil && all[1].from != nil &&
		all[0].toValue > all[1].fromValue {
		all = []interval{span(all[1].from, all[0].to, all[1].withFrom, all[0].withTo)}
	}
	for _, hole := range holes {
		all = pierced(all, hole)
	}
	return all, true
}

// pierced removes a point from the intervals.
func pierced(all []interval, hole *expr.Node) []interval {
	var found []interval
	x, ok := algebra.Approximate(hole)
	for _, p := range all {
		switch {
		case ok && p.fromValue < x && x < p.toValue:
			found = append(found, span(p.from, hole, p.withFrom, false), span(hole, p.to, false, p.withTo))
		default:
			p.withFrom = p.withFrom && p.fromValue != x
			p.withTo = p.withTo && p.toValue != x
			found = append(found, p)
		}
	}
	return found
}

// inequality returns the set of real numbers that n describes. ok is false if n describes none.
func inequality(n *expr.Node) (set []interval, ok bool) {
	n = ascending(n)
	args, ops := n.Args, n.Ops
	if len(ops) == 1 && ops[0] == "in" && !isConstant(args[0]) {
		found, ok := unsorted(args[1])
		for i := range found {
			found[i].explicit = true
		}
		return found, ok
	}
	for _, op := range ops {
		if op != "<" && op != "<=" && (op != "!=" || len(ops) != 1) {
			return nil, false
		}
	}
	fixed := func(m *expr.Node) bool { return isConstant(m) || isInfinite(m) }
	switch {
	case len(ops) == 1 && ops[0] == "!=" && fixed(args[1]) && !fixed(args[0]):
		return between(args[1:]), true
	case len(ops) == 1 && fixed(args[1]) && !fixed(args[0]):
		return folded(args[0], nil, args[1], false, ops[0] == "<=")
	case len(ops) == 1 && fixed(args[0]) && !fixed(args[1]):
		return folded(args[1], args[0], nil, ops[0] == "<=", false)
	case len(ops) == 2 && fixed(args[0]) && fixed(args[2]) && !fixed(args[1]):
		return folded(args[1], args[0], args[2], ops[0] == "<=", ops[1] == "<=")
	}
	return nil, false
}

// folded returns the interval from from to to, to which x belongs. If x is |y|, it returns the one or two
// intervals to which y belongs.
func folded(x, from, to *expr.Node, withFrom, withTo bool) ([]interval, bool) {
	if x.Kind != expr.Call || x.Name != "abs" || len(x.Args) != 1 || x.Args[0].Kind != expr.Symbol {
		return []interval{span(from, to, withFrom, withTo)}, true
	}
	switch {
	case from == nil:
		return []interval{span(expr.Negate(to), to, withTo, withTo)}, true
	case to == nil:
		return []interval{span(nil, expr.Negate(from), false, withFrom), span(from, nil, withFrom, false)}, true
	}
	return []interval{span(expr.Negate(to), expr.Negate(from), withTo, withFrom), span(from, to, withFrom, withTo)},
		true
}
