// Package measure reads units, measures of several units such as 2 hours and 40 minutes, and
// times of the day.
package measure

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Unit holds the dimension and the size of a unit of measurement: km/h is 1000/3600 of m^1 s^-1. Two Units
// are equal (==) if they have the same dimension and size. The zero Unit stands for an unknown unit.
type Unit struct {
	Dimension string // base units and their powers, as in "m^1 s^-1"
	size      string // in base units, a rational number
}

// Known reports whether u is a known unit.
func (u Unit) Known() bool { return u.size != "" }

// Size returns the size of u in base units. It is nil for the zero Unit.
func (u Unit) Size() *big.Rat {
	size, _ := new(big.Rat).SetString(u.size)
	return size
}

// maxUnit bounds the name of a unit, in bytes.
const maxUnit = 64

// Of returns the unit called name, in symbols or words: km/h, "kilometers per hour", m s^-2,
// "square feet". It knows only units all of whose parts it knows.
func Of(name string) Unit {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxUnit {
		return Unit{}
	}
	if !strings.ContainsAny(name, "²³⁻^{}$\\·* /") {
		return single(name)
	}
	name = strings.NewReplacer("²", "^2", "³", "^3", "⁻¹", "^-1", "⁻²", "^-2", "{", "", "}", "", "$", "", `\,`, " ",
		`\cdot`, " ", "·", " ", "*", " ", " per ", " / ", "/", " / ").Replace(" " + name + " ")
	size, powers := big.NewRat(1, 1), map[string]int{}
	sign, next := 1, 0 // next is the power that "square" or "cubic" announces
	known := false
	for _, f := range strings.Fields(name) {
		switch f {
		case "/":
			sign = -1
			continue
		case "square", "sq":
			next = 2
			continue
		case "cubic", "cu":
			next = 3
			continue
		}
		base, exponent, ok := strings.Cut(f, "^")
		power := 1
		if ok {
			n, err := strconv.Atoi(exponent)
			if err != nil || n == 0 || n < -4 || n > 4 {
				return Unit{}
			}
			power = n
		}
		if next > 0 {
			power, next = next, 0
		}
		u := single(base)
		if !u.Known() {
			return Unit{}
		}
		known = true
		power *= sign
		for dimension, n := range u.powers() {
			powers[dimension] += n * power
		}
		for range max(power, -power) {
			if power > 0 {
				size.Mul(size, u.Size())
			} else {
				size.Quo(size, u.Size())
			}
		}
		sign = 1
	}
	if !known || next > 0 || sign < 0 {
		return Unit{}
	}
	var parts []string
	for _, dimension := range slices.Sorted(maps.Keys(powers)) {
		if powers[dimension] != 0 {
			parts = append(parts, fmt.Sprintf("%s^%d", dimension, powers[dimension]))
		}
	}
	return Unit{strings.Join(parts, " "), size.RatString()}
}

// IsUnit reports whether name is a known unit.
func IsUnit(name string) bool { return Of(name).Known() }

// powers returns the powers of the base units in u.
func (u Unit) powers() map[string]int {
	powers := map[string]int{}
	for _, f := range strings.Fields(u.Dimension) {
		base, exponent, _ := strings.Cut(f, "^")
		powers[base], _ = strconv.Atoi(exponent)
	}
	return powers
}

// single returns the unit that one word or symbol names, with or without a metric prefix.
func single(name string) Unit {
	metric := metric()
	for _, list := range [][]kind{metric, others()} {
		if u := named(list, name, true); u.Known() {
			return u
		}
	}
	for _, p := range [][2]string{{"k", "1000"}, {"c", "1/100"}, {"m", "1/1000"}, {"d", "1/10"}, {"M", "1000000"},
		{"G", "1000000000"}, {"µ", "1/1000000"}, {"μ", "1/1000000"}, {"n", "1/1000000000"}, {"h", "100"},
		{"kilo", "1000"}, {"centi", "1/100"}, {"milli", "1/1000"}, {"deci", "1/10"}, {"mega", "1000000"},
		{"giga", "1000000000"}, {"micro", "1/1000000"}, {"nano", "1/1000000000"}, {"hecto", "100"}} {
		inWords := len(p[0]) > 2
		rest, ok := strings.CutPrefix(name, p[0])
		if !ok && inWords {
			rest, ok = strings.CutPrefix(strings.ToLower(name), p[0])
		}
		if !ok {
			continue
		}
		if u := named(metric, rest, inWords); u.Known() {
			size, _ := new(big.Rat).SetString(p[1])
			return Unit{u.Dimension, size.Mul(size, u.Size()).RatString()}
		}
	}
	if lower := strings.ToLower(name); lower != name && utf8.RuneCountInString(name) == 2 {
		return single(lower) // KG
	}
	return Unit{}
}

// kind is a unit: its symbols, whose case matters, its names in lower case, its size and its
// dimension.
type kind struct {
	symbols, names  expr.Names
	size, dimension string
}

// named returns the unit in list that has name as a symbol or, if names is set, as a name. It returns the
// zero Unit if there is none.
func named(list []kind, name string, names bool) Unit {
	word := strings.ToLower(name)
	if len(word) > 3 && word != "hertz" {
		word = strings.TrimSuffix(word, "s")
	}
	for _, k := range list {
		if k.symbols.Has(name) || names && utf8.RuneCountInString(name) > 1 && k.names.Has(word) {
			size, _ := new(big.Rat).SetString(k.size)
			return Unit{k.dimension, size.RatString()}
		}
	}
	return Unit{}
}

// metric returns the units that take a prefix.
func metric() []kind {
	return []kind{
		{"m", "meter metre", "1", "m^1"}, {"g", "gram", "1", "g^1"}, {"s", "second", "1", "s^1"},
		{"L l", "liter litre", "1/1000", "m^3"}, {"N", "newton", "1000", "g^1 m^1 s^-2"},
		{"J", "joule", "1000", "g^1 m^2 s^-2"}, {"W", "watt", "1000", "g^1 m^2 s^-3"},
		{"Pa", "pascal", "1000", "g^1 m^-1 s^-2"}, {"V", "volt", "1000", "A^-1 g^1 m^2 s^-3"},
		{"Ω", "ohm", "1000", "A^-2 g^1 m^2 s^-3"}, {"A", "ampere amp", "1", "A^1"}, {"C", "coulomb", "1", "A^1 s^1"},
		{"Hz", "hertz", "1", "s^-1"}, {"mol", "mole", "1", "mol^1"}, {"Wh", "", "3600000", "g^1 m^2 s^-2"},
		{"eV", "", "1", "eV^1"}, {"F", "farad", "1", "F^1"}, {"T", "tesla", "1", "T^1"}, {"bit", "", "1", "bit^1"},
		{"cal", "calorie", "1", "cal^1"},
	}
}

// others returns the units that take no prefix.
func others() []kind {
	return []kind{
		{"", "sec secs", "1", "s^1"}, {"", "minute min mins", "60", "s^1"}, {"h", "hour hr hrs", "3600", "s^1"},
		{"", "day", "86400", "s^1"}, {"", "week", "604800", "s^1"}, {"", "month", "1", "month^1"},
		{"", "year yr yrs", "12", "month^1"}, {"K", "kelvin", "1", "K^1"}, {"", "ton tonne", "1000000", "g^1"},
		{"", "inch inche in", "254/10000", "m^1"}, {"", "foot feet ft", "3048/10000", "m^1"},
		{"", "yard yd yds", "9144/10000", "m^1"}, {"", "mile mi", "1609344/1000", "m^1"},
		{"", "acre", "40468564224/10000000", "m^2"}, {"", "hectare ha", "10000", "m^2"},
		{"", "ounce oz", "28349523125/1000000000", "g^1"}, {"", "pound lb lbs", "45359237/100000", "g^1"},
		{"", "cup", "1/16", "gal^1"}, {"", "pint", "1/8", "gal^1"}, {"", "quart", "1/4", "gal^1"},
		{"", "gallon gal", "1", "gal^1"}, {"", "mph", "1609344/3600000", "m^1 s^-1"},
		{"", "kph kmh kmph", "1000/3600", "m^1 s^-1"}, {"", "knot", "1", "knot^1"}, {"", "bar", "1", "bar^1"},
		{"", "atm", "1", "atm^1"}, {"", "degree deg", "1", "deg^1"}, {"", "radian rad", "1", "rad^1"},
		{"", "byte", "1", "byte^1"}, {"", "decibel", "1", "decibel^1"}, {"", "dollar usd buck", "100", "cent^1"},
		{"", "cent penny pennie", "1", "cent^1"}, {"", "euro eur", "1", "euro^1"},
	}
}

// Strip returns n without its units, and the name of the outermost one. A percent sign, and a unit inside
// "dollars", take precedence over a unit around them.
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

// Kind returns what a unit measures: a length, an area, a volume, a time, a mass, money, a
// temperature, an angle, a speed, or another rate. It returns "" for another unit.
func Kind(name string) string {
	u := Of(name)
	for _, row := range [...][2]string{{"m^1", "length"}, {"m^2", "area"}, {"m^3", "volume"}, {"gal^1", "volume"},
		{"s^1", "time"}, {"g^1", "mass"}, {"cent^1", "money"}, {"K^1", "temperature"}, {"rad^1", "angle"},
		{"m^1 s^-1", "speed"}} {
		if u.Dimension == row[0] {
			return row[1]
		}
	}
	if u.Known() && (strings.Contains(name, "/") || strings.Contains(name, " per ")) {
		return "rate"
	}
	return ""
}
