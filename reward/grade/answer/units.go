package answer

import (
	"math/big"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
)

// units compares measures. A unit on one side only counts if the question does not ask
// for another one. Units that measure the same thing are converted.
func (c *comparer) units(w, g *expr.Node) bool {
	a, in := measure.Strip(w)
	b, out := measure.Strip(g)
	if (c.question.alters(out) || !c.question.plain(out)) && singular(out) != singular(in) {
		return c.because(Altered)
	}
	switch {
	case in == "%" || out == "%":
		return c.percentages(a, b, in == "%", out == "%")
	case out == "deg" && (in != "" && in != out || c.question.asks("radian")), in == "deg" && out != "" && out != in:
		return c.because(OtherUnit)
	case measure.Meridian(in) != "" && measure.Meridian(out) != "" && measure.Meridian(in) != measure.Meridian(out):
		return false
	}
	if in == "" && c.isUnder(a, b, out) {
		return true
	}
	if in == "" && singular(strings.ToLower(out)) == "cent" && c.same(a, algebra.Times(b, 1, 100)) {
		return true // 50 cents for 0.50
	}
	x, y := measure.UnitOf(in), measure.UnitOf(out)
	if in == "" && y == measure.UnitOf("cent") && c.question.asks("$", "dollar") && !c.question.asks("cent", "penn") {
		return c.same(a, b) && c.because(OtherUnit)
	}
	if in == "" && y.Num > 0 {
		if x = c.question.asked(); x.Num == 0 {
			x = y
		}
	}
	switch {
	case in == "" && strings.HasSuffix(y.Dimension, "length") && c.question.asksRegion():
		return c.same(a, b) && c.because(OtherUnit)
	case in == "" && c.question.foreign(y):
		return c.same(a, b) && c.because(OtherUnit)
	case x.Num > 0 && y.Num > 0 && x.Dimension != y.Dimension, measure.Shape(in) != "" && measure.Shape(out) != "" && measure.Shape(in) != measure.Shape(out):
		return c.because(OtherUnit)
	case x.Num > 0 && y.Num > 0 && x != y && in == "" && c.question.asked() == x, in == "" && !c.question.fits(out):
		return c.same(a, b) && c.because(OtherUnit)
	case x.Num > 0 && y.Num > 0 && x != y:
		return c.same(algebra.Times(a, x.Num, x.Den), algebra.Times(b, y.Num, y.Den)) || c.same(a, b) && c.because(OtherUnit)
	}
	return c.same(a, b)
}

// percentages compares numbers of which one or both are percentages.
func (c *comparer) percentages(a, b *expr.Node, inW, inG bool) bool {
	if inW != inG && c.percent(a, b, inW, inG) {
		return !inW || !c.question.asks("as a percent", "to a percent", "into a percent") || c.because(OtherForm)
	}
	if inG && !inW && c.question.Text != "" && (!c.question.asksShare() || isFraction(a)) {
		return c.same(a, b) && c.because(OtherUnit)
	}
	return c.same(a, b)
}

// isUnder reports whether b states the whole number a in a larger unit: cents as
// dollars, "$0.25" for 25, or an hour as a time, "2:00 pm" for 2.
func (c *comparer) isUnder(a, b *expr.Node, name string) bool {
	if a.Kind != expr.Number || a.Places > 0 {
		return false
	}
	if measure.Meridian(name) != "" && b.Kind == expr.Ratio && len(b.Args) == 2 && b.Args[1].Digits == "00" {
		return c.same(a, b.Args[0])
	}
	return measure.UnitOf(name) == measure.UnitOf("dollar") && b.Kind == expr.Number && b.Places == 2 && b.Value.Sign() > 0 && b.Value.Cmp(big.NewRat(1, 1)) < 0 && c.same(a, algebra.Times(b, 100, 1))
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
	r, ok := algebra.NewComparer().Rational(n)
	return ok && r.Sign() > 0 && r.Cmp(big.NewRat(1, 1)) < 0
}

// measures compares w and g if either is a compound measure; otherwise known is false.
// A bare number counts in the unit that the question asks for, or else in the largest or
// the smallest unit of the response's measure.
func (q *Question) measures(w, g string) (same, known bool) {
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
		r, ok := algebra.NewComparer().Rational(n)
		units := []measure.Unit{b.Units[0], b.Units[len(b.Units)-1]}
		if asked := q.asked(); asked.Dimension == units[0].Dimension {
			units = []measure.Unit{asked}
		}
		for _, u := range units {
			if ok && new(big.Rat).Mul(r, big.NewRat(u.Num, u.Den)).Cmp(b.Total) == 0 {
				return true, true
			}
		}
		return false, true
	}
	return false, false
}
