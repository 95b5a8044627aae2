package answer

import (
	"math/big"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// units compares measures. If only g has a unit, it must be one that the question allows. Units that
// measure the same thing are converted.
func (c *comparer) units(w, g *expr.Node) bool {
	a, in := measure.Strip(w)
	b, out := measure.Strip(g)
	if c.question.ChangedBy(out) && words.Singular(out) != words.Singular(in) {
		return c.because(Altered)
	}
	if in == "C" && out == "deg" && w.Args[0].Kind == expr.Unit && g.Args[0].Kind != expr.Unit { // 80° for 80 °C
		return c.same(a, b)
	}
	x, y := measure.Of(in), measure.Of(out)
	if in == "" {
		x = c.question.AskedUnit()
	}
	implied := in == "" && !x.Known() && y.Known()
	if implied {
		x = c.question.UnitLike(y)
	}
	switch {
	case implied && c.question.OtherKind(out):
		return c.same(a, b) && c.because(OtherUnit)
	case !x.Known() || !y.Known() || in == "%" || out == "%":
	case x.Dimension == y.Dimension && (in != "" || implied || x == y) &&
		c.same(scaledBy(a, x.Size()), scaledBy(b, y.Size())),
		x.Dimension == y.Dimension && in == "" && c.inLargerUnit(a, b, out):
		return true
	default:
		return c.same(a, b) && c.because(OtherUnit)
	}
	switch {
	case in == "%" && out != "" && out != "%", in == "" && !y.Known() && isCount(out) &&
		(x.Known() || c.question.Measures()):
		return c.same(a, b) && c.because(OtherUnit)
	case in == "%" || out == "%":
		return c.percentages(a, b, in == "%", out == "%")
	case out == "deg" && (in != "" && in != out ||
		c.question.Asks("radian") && !c.question.Asks("in degrees", "to degrees")),
		in == "deg" && out != "" && out != in,
		in != "" && out != "" && strings.Contains(in, "/") != strings.Contains(out, "/") &&
			(isRate(in) || isRate(out)):
		return c.because(OtherUnit)
	case measure.Meridian(in) != "" && measure.Meridian(out) != "" && measure.Meridian(in) != measure.Meridian(out):
		return false
	}
	if in == "" && c.inLargerUnit(a, b, out) {
		return true
	}
	if in == "" && words.Singular(strings.ToLower(out)) == "cent" && c.same(a, algebra.Times(b, 1, 100)) {
		return true // 50 cents for 0.50
	}
	if in == "" && (y == measure.Of("cent") && c.question.Asks("$", "dollar", "euro", "€") &&
		!c.question.Asks("cent", "penn") || c.question.OtherKind(out) || c.question.Foreign(out) ||
		!c.question.Fits(out)) {
		return c.same(a, b) && c.because(OtherUnit)
	}
	return c.same(a, b)
}

// isRate reports whether a unit measures a rate.
func isRate(name string) bool {
	kind := measure.Kind(name)
	return kind == "rate" || kind == "speed"
}

// isCount reports whether the words of a unit say only what is counted: "5 pens".
func isCount(name string) bool {
	fields := strings.Fields(strings.ToLower(name))
	return len(fields) > 0 && len(fields[len(fields)-1]) > 3 && strings.HasSuffix(name, "s") &&
		!slices.ContainsFunc(fields, func(f string) bool { return measure.IsUnit(f) || f == "units" || f == "times" })
}

// scaledBy returns n multiplied by size.
func scaledBy(n *expr.Node, size *big.Rat) *expr.Node {
	if size.Cmp(big.NewRat(1, 1)) == 0 {
		return n
	}
	return expr.Multiply(n, &expr.Node{Kind: expr.Number, Value: size})
}

// percentages compares two numbers. At least one of them is a percentage.
func (c *comparer) percentages(a, b *expr.Node, inW, inG bool) bool {
	if inW != inG && c.percent(a, b, inW, inG) {
		return !inW || !c.question.Asks("as a percent", "to a percent", "into a percent") || c.because(OtherForm)
	}
	if inG && !inW && c.question.Text != "" && (!c.question.AsksShare() || isFraction(a)) {
		return c.same(a, b) && c.because(OtherUnit)
	}
	return c.same(a, b)
}

// inLargerUnit reports whether b states the whole number a in a larger unit: cents as
// dollars, "$0.25" for 25, or an hour as a time, "2:00 pm" for 2.
func (c *comparer) inLargerUnit(a, b *expr.Node, name string) bool {
	if a.Kind != expr.Number || a.Places > 0 {
		return false
	}
	if measure.Meridian(name) != "" && b.Kind == expr.Ratio && len(b.Args) == 2 && b.Args[1].Digits == "00" {
		return c.same(a, b.Args[0])
	}
	return measure.Of(name) == measure.Of("dollar") && b.Kind == expr.Number && b.Places == 2 && b.Value.Sign() > 0 &&
		b.Value.Cmp(big.NewRat(1, 1)) < 0 && c.same(a, algebra.Times(b, 100, 1))
}

// percent compares 28% with 0.28.
func (c *comparer) percent(a, b *expr.Node, inW, inG bool) bool {
	if a.Kind >= expr.Bracket || b.Kind >= expr.Bracket {
		return false
	}
	if inW {
		a = algebra.Times(a, 1, 100)
	}
	if inG {
		b = algebra.Times(b, 1, 100)
	}
	return c.same(a, b)
}

// isFraction reports whether n is a number between 0 and 1, which is no percentage by
// itself.
func isFraction(n *expr.Node) bool {
	r, ok := algebra.NewComparer(nil).Rational(n)
	return ok && r.Sign() > 0 && r.Cmp(big.NewRat(1, 1)) < 0
}

// measures compares w and g if either is a compound measure; otherwise known is false.
// A bare number counts in the unit that the question asks for, or else in the largest or
// the smallest unit of the response's measure.
func measures(q *question.Question, w, g string) (same, known bool) {
	a, okA := measure.Whole(w)
	b, okB := measure.Whole(g)
	switch {
	case okA && okB && len(a.Units)+len(b.Units) > 2:
		return a.Units[0].Dimension == b.Units[0].Dimension && a.Total.Cmp(b.Total) == 0, true
	case okB && len(b.Units) > 1:
		n, ok := read(w, expr.Mode{Thousands: true})
		if !ok {
			return false, false
		}
		n, _ = measure.Strip(n)
		r, ok := algebra.NewComparer(nil).Rational(n)
		units := []measure.Unit{b.Units[0], b.Units[len(b.Units)-1]}
		if asked := q.AskedUnit(); asked.Known() && asked.Dimension == units[0].Dimension {
			units = []measure.Unit{asked}
		}
		for _, u := range units {
			if ok && new(big.Rat).Mul(r, u.Size()).Cmp(b.Total) == 0 {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}
