// Package measure reads units, measures of several units such as 2 hours and 40 minutes, and
// times of the day.
package measure

import (
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Unit is a dimension and the unit's size, num/den of the base unit.
type Unit struct {
	Dimension string
	Num, Den  int64
}

// UnitOf returns the unit called name, or the zero unit if it is unknown.
func UnitOf(name string) Unit {
	name = strings.ToLower(strings.TrimSpace(name))
	if len(name) > 3 {
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "dollar", "usd", "buck":
		return Unit{"money", 100, 1}
	case "cent":
		return Unit{"money", 1, 1}
	case "second", "sec":
		return Unit{"time", 1, 1}
	case "minute", "min":
		return Unit{"time", 60, 1}
	case "hour", "hr", "hrs":
		return Unit{"time", 3600, 1}
	case "day":
		return Unit{"time", 86400, 1}
	case "week":
		return Unit{"time", 604800, 1}
	case "mm", "millimeter", "millimetre":
		return Unit{"length", 1, 1}
	case "cm", "centimeter", "centimetre":
		return Unit{"length", 10, 1}
	case "m", "meter", "metre":
		return Unit{"length", 1000, 1}
	case "km", "kilometer", "kilometre":
		return Unit{"length", 1000000, 1}
	case "g", "gram":
		return Unit{"mass", 1, 1}
	case "kg", "kilogram":
		return Unit{"mass", 1000, 1}
	case "mg", "milligram":
		return Unit{"mass", 1, 1000}
	case "ml", "milliliter", "millilitre":
		return Unit{"volume", 1, 1}
	case "liter", "litre":
		return Unit{"volume", 1000, 1}
	case "kelvin":
		return Unit{"temperature", 1, 1}
	case "radian":
		return Unit{"angle", 1, 1}
	}
	return imperial(name)
}

// imperial returns the unit of length, mass or volume called name outside the metric system.
func imperial(name string) Unit {
	switch name {
	case "inch", "inche", "in":
		return Unit{"imperial length", 1, 1}
	case "feet", "foot", "ft":
		return Unit{"imperial length", 12, 1}
	case "yard", "yd":
		return Unit{"imperial length", 36, 1}
	case "mile", "mi":
		return Unit{"imperial length", 63360, 1}
	case "ounce", "oz":
		return Unit{"imperial mass", 1, 1}
	case "pound", "lb", "lbs":
		return Unit{"imperial mass", 16, 1}
	case "pint":
		return Unit{"imperial volume", 1, 1}
	case "quart":
		return Unit{"imperial volume", 2, 1}
	case "gallon":
		return Unit{"imperial volume", 8, 1}
	}
	return Unit{}
}

// IsUnit reports whether name is a known unit.
func IsUnit(name string) bool { return UnitOf(name) != Unit{} }

// Shape returns the unit and its power of an area or a volume, as in cm^2, or "".
func Shape(name string) string {
	name = strings.ToLower(name)
	for power, word := range map[string]string{"^2": "square ", "^3": "cubic "} {
		base, ok := strings.CutSuffix(name, power)
		if !ok {
			base, ok = strings.CutPrefix(name, word)
		}
		if u := UnitOf(base); ok && u.Num > 0 {
			return u.Dimension + strconv.FormatInt(u.Num, 10) + power
		}
	}
	return ""
}

// Strip returns n without its unit, and the unit.
func Strip(n *expr.Node) (*expr.Node, string) {
	name := ""
	for n.Kind == expr.Unit {
		if name == "" || name == "dollars" || n.Name == "%" {
			name = n.Name
		}
		n = n.Args[0]
	}
	return n, name
}

// Meridian returns am, pm or "".
func Meridian(name string) string {
	if name = strings.ToLower(name); name == "am" || name == "pm" {
		return name
	}
	return ""
}

// Kind returns what a unit measures: a length, an area, a volume, a time, a mass, money, or a
// rate such as km/h. It returns "" for an unknown unit.
func Kind(name string) string {
	name = strings.NewReplacer("²", "^2", "³", "^3", "{", "", "}", "").Replace(strings.ToLower(strings.TrimSpace(name)))
	if above, below, ok := strings.Cut(strings.ReplaceAll(name, " per ", "/"), "/"); ok {
		if IsUnit(above) && (IsUnit(below) || below == "h" || below == "s") {
			return "rate"
		}
		return ""
	}
	if name == "mph" || name == "kph" || name == "kmh" {
		return "rate"
	}
	if shape := Shape(name); shape != "" {
		return map[bool]string{true: "area", false: "volume"}[strings.HasSuffix(shape, "2")]
	}
	dimension := UnitOf(name).Dimension
	return dimension[strings.LastIndexByte(dimension, ' ')+1:]
}
