package answer

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// unit is a dimension and the unit's size, num/den of the base unit.
type unit struct {
	dimension string
	num, den  int64
}

// unitOf returns the unit called name, or the zero unit if it is unknown.
func unitOf(name string) unit {
	name = strings.ToLower(strings.TrimSpace(name))
	if len(name) > 3 {
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "dollar", "usd", "buck":
		return unit{"money", 100, 1}
	case "cent":
		return unit{"money", 1, 1}
	case "second", "sec":
		return unit{"time", 1, 1}
	case "minute", "min":
		return unit{"time", 60, 1}
	case "hour", "hr", "hrs":
		return unit{"time", 3600, 1}
	case "day":
		return unit{"time", 86400, 1}
	case "week":
		return unit{"time", 604800, 1}
	case "mm", "millimeter":
		return unit{"length", 1, 1}
	case "cm", "centimeter", "centimetre":
		return unit{"length", 10, 1}
	case "m", "meter", "metre":
		return unit{"length", 1000, 1}
	case "km", "kilometer", "kilometre":
		return unit{"length", 1000000, 1}
	case "inch", "inche", "in":
		return unit{"imperial length", 1, 1}
	case "feet", "foot", "ft":
		return unit{"imperial length", 12, 1}
	case "yard", "yd":
		return unit{"imperial length", 36, 1}
	case "mile", "mi":
		return unit{"imperial length", 63360, 1}
	case "g", "gram":
		return unit{"mass", 1, 1}
	case "kg", "kilogram":
		return unit{"mass", 1000, 1}
	case "ounce", "oz":
		return unit{"imperial mass", 1, 1}
	case "pound", "lb", "lbs":
		return unit{"imperial mass", 16, 1}
	case "mg", "milligram":
		return unit{"mass", 1, 1000}
	case "ml", "milliliter", "millilitre":
		return unit{"volume", 1, 1}
	case "liter", "litre":
		return unit{"volume", 1000, 1}
	case "pint":
		return unit{"imperial volume", 1, 1}
	case "quart":
		return unit{"imperial volume", 2, 1}
	case "gallon":
		return unit{"imperial volume", 8, 1}
	case "radian":
		return unit{"angle", 1, 1}
	}
	return unit{}
}

// IsUnit reports whether name is a known unit.
func IsUnit(name string) bool { return unitOf(name) != unit{} }

// bare returns n without its unit, and the unit.
func bare(n *expr.Node) (*expr.Node, string) {
	name := ""
	for n.Kind == expr.Unit {
		if name == "" || name == "dollars" {
			name = n.Name
		}
		n = n.Args[0]
	}
	return n, name
}

// units compares measures. A unit on one side only counts if the question does not ask
// for another one. Units that measure the same thing are converted.
func (c *comparer) units(w, g *expr.Node) bool {
	a, in := bare(w)
	b, out := bare(g)
	if (c.question.alters(out) || !c.question.plain(out)) && singular(out) != singular(in) {
		return c.because(Altered)
	}
	switch {
	case in == "%" || out == "%":
		return c.percentages(a, b, in == "%", out == "%")
	case out == "deg" && (in != "" && in != out || c.question.asks("radian")), in == "deg" && out != "" && out != in:
		return c.because(OtherUnit)
	case meridian(in) != "" && meridian(out) != "" && meridian(in) != meridian(out):
		return false
	}
	if in == "" && c.isUnder(a, b, out) {
		return true
	}
	if in == "" && singular(strings.ToLower(out)) == "cent" && c.same(a, algebra.Times(b, 1, 100)) {
		return true // 50 cents for 0.50
	}
	x, y := unitOf(in), unitOf(out)
	if in == "" && y == unitOf("cent") && c.question.asks("$", "dollar") && !c.question.asks("cent", "penn") {
		return c.same(a, b) && c.because(OtherUnit)
	}
	if in == "" && y.num > 0 {
		if x = c.question.asked(); x.num == 0 {
			x = y
		}
	}
	switch {
	case in == "" && strings.HasSuffix(y.dimension, "length") && c.question.asksRegion():
		return c.same(a, b) && c.because(OtherUnit)
	case in == "" && c.question.foreign(y):
		return c.same(a, b) && c.because(OtherUnit)
	case x.num > 0 && y.num > 0 && x.dimension != y.dimension, shape(in) != "" && shape(out) != "" && shape(in) != shape(out):
		return c.because(OtherUnit)
	case x.num > 0 && y.num > 0 && x != y && in == "" && c.question.asked() == x, in == "" && !c.question.fits(out):
		return c.same(a, b) && c.because(OtherUnit)
	case x.num > 0 && y.num > 0 && x != y:
		return c.same(algebra.Times(a, x.num, x.den), algebra.Times(b, y.num, y.den)) || c.same(a, b) && c.because(OtherUnit)
	}
	return c.same(a, b)
}

// shape returns the unit and its power of an area or a volume, as in cm^2, or "".
func shape(name string) string {
	name = strings.ToLower(name)
	for power, word := range map[string]string{"^2": "square ", "^3": "cubic "} {
		base, ok := strings.CutSuffix(name, power)
		if !ok {
			base, ok = strings.CutPrefix(name, word)
		}
		if u := unitOf(base); ok && u.num > 0 {
			return u.dimension + strconv.FormatInt(u.num, 10) + power
		}
	}
	return ""
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
func (c *comparer) isUnder(a, b *expr.Node, unit string) bool {
	if a.Kind != expr.Number || a.Places > 0 {
		return false
	}
	if meridian(unit) != "" && b.Kind == expr.Ratio && len(b.Args) == 2 && b.Args[1].Digits == "00" {
		return c.same(a, b.Args[0])
	}
	return unitOf(unit) == unitOf("dollar") && b.Kind == expr.Number && b.Places == 2 && b.Value.Sign() > 0 && b.Value.Cmp(big.NewRat(1, 1)) < 0 && c.same(a, algebra.Times(b, 100, 1))
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

// meridian returns am, pm or "".
func meridian(name string) string {
	if name = strings.ToLower(name); name == "am" || name == "pm" {
		return name
	}
	return ""
}

// isFraction reports whether n is a number between 0 and 1, which is no percentage by
// itself.
func isFraction(n *expr.Node) bool {
	r, ok := algebra.NewComparer().Rational(n)
	return ok && r.Sign() > 0 && r.Cmp(big.NewRat(1, 1)) < 0
}
