package measure

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quantity is what a unit measures: km/h is 1000/3600 of length per time. The zero Quantity is
// that of no known unit.
type Quantity struct {
	Size      *big.Rat // in base units
	Dimension string   // base units and their powers, as in "m^1 s^-1"
}

// maxUnit bounds the name of a unit, in bytes.
const maxUnit = 64

// Of returns the quantity of a unit in symbols or words: km/h, "kilometers per hour", m s^-2,
// "square feet". It knows only units all of whose parts it knows.
func Of(name string) (Quantity, bool) {
	name = strings.TrimSpace(name)
	if name == "" || len(name) > maxUnit {
		return Quantity{}, false
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
		case "squared", "cubed":
			return Quantity{}, false
		}
		base, exponent, ok := strings.Cut(f, "^")
		power := 1
		if ok {
			n, err := strconv.Atoi(exponent)
			if err != nil || n == 0 || n < -4 || n > 4 {
				return Quantity{}, false
			}
			power = n
		}
		if next > 0 {
			power, next = next, 0
		}
		u, ok := unitOf(base)
		if !ok {
			return Quantity{}, false
		}
		known = true
		for range max(power, -power) {
			for dimension, n := range u.powers {
				powers[dimension] += n * sign * power / max(power, -power)
			}
			if (power > 0) == (sign > 0) {
				size.Mul(size, u.size)
			} else {
				size.Quo(size, u.size)
			}
		}
		sign = 1
	}
	if !known || next > 0 || sign < 0 {
		return Quantity{}, false
	}
	var parts []string
	for _, dimension := range slices.Sorted(maps.Keys(powers)) {
		if powers[dimension] != 0 {
			parts = append(parts, fmt.Sprintf("%s^%d", dimension, powers[dimension]))
		}
	}
	return Quantity{size, strings.Join(parts, " ")}, true
}

// IsQuantity reports whether name is a unit that Of knows.
func IsQuantity(name string) bool {
	_, ok := Of(name)
	return ok
}

// single is a unit without a product.
type single struct {
	size   *big.Rat
	powers map[string]int
}

// unitOf returns the unit of one word or symbol, with its prefix.
func unitOf(name string) (single, bool) {
	if u, ok := symbol(name); ok {
		return u, true
	}
	for _, p := range []struct {
		letter   string
		num, den int64
	}{{"k", 1000, 1}, {"c", 1, 100}, {"m", 1, 1000}, {"d", 1, 10}, {"M", 1e6, 1}, {"G", 1e9, 1}, {"µ", 1, 1e6}, {"μ",
		1, 1e6}, {"n", 1, 1e9}, {"h", 100, 1},
		{"kilo", 1000, 1}, {"centi", 1, 100}, {"milli", 1, 1000}, {"deci", 1, 10}, {"mega", 1e6, 1}, {"giga", 1e9, 1},
		{"micro", 1, 1e6}, {"nano", 1, 1e9}, {"hecto", 100, 1}} {
		rest, ok := strings.CutPrefix(name, p.letter)
		if !ok && len(p.letter) > 2 {
			rest, ok = strings.CutPrefix(strings.ToLower(name), p.letter)
		}
		if !ok || !takesPrefix(rest, len(p.letter) > 2) {
			continue
		}
		if u, ok := symbol(rest); ok {
			u.size = new(big.Rat).Mul(u.size, big.NewRat(p.num, p.den))
			return u, true
		}
	}
	return single{}, false
}

// takesPrefix reports whether a unit may have a prefix in letters or, if spelt is set, in words.
func takesPrefix(name string, spelt bool) bool {
	switch name {
	case "m", "g", "s", "L", "l", "N", "J", "W", "V", "A", "Hz", "Pa", "Ω", "F", "mol", "eV", "cal", "Wh", "C", "T",
		"bit":
		return true
	}
	if !spelt {
		return false
	}
	switch strings.TrimSuffix(strings.ToLower(name), "s") {
	case "meter", "metre", "gram", "second", "liter", "litre", "newton", "joule", "watt", "volt", "ampere", "amp",
		"hertz", "pascal", "ohm", "farad", "mole", "calorie", "coulomb":
		return true
	}
	return false
}

// symbol returns the unit of a word or symbol without prefix.
func symbol(name string) (single, bool) {
	of := func(num, den int64, powers map[string]int) (single, bool) {
		return single{big.NewRat(num, den), powers}, true
	}
	length, area, volume, mass, time := map[string]int{"m": 1}, map[string]int{"m": 2}, map[string]int{"m": 3},
		map[string]int{"g": 1}, map[string]int{"s": 1}
	switch name { // symbols, whose case matters
	case "m":
		return of(1, 1, length)
	case "g":
		return of(1, 1, mass)
	case "s":
		return of(1, 1, time)
	case "h":
		return of(3600, 1, time)
	case "L", "l":
		return of(1, 1000, volume)
	case "N":
		return of(1000, 1, map[string]int{"g": 1, "m": 1, "s": -2})
	case "J":
		return of(1000, 1, map[string]int{"g": 1, "m": 2, "s": -2})
	case "W":
		return of(1000, 1, map[string]int{"g": 1, "m": 2, "s": -3})
	case "Pa":
		return of(1000, 1, map[string]int{"g": 1, "m": -1, "s": -2})
	case "V":
		return of(1000, 1, map[string]int{"g": 1, "m": 2, "s": -3, "A": -1})
	case "Ω":
		return of(1000, 1, map[string]int{"g": 1, "m": 2, "s": -3, "A": -2})
	case "A":
		return of(1, 1, map[string]int{"A": 1})
	case "C":
		return of(1, 1, map[string]int{"A": 1, "s": 1})
	case "Hz":
		return of(1, 1, map[string]int{"s": -1})
	case "K":
		return of(1, 1, map[string]int{"K": 1})
	case "mol":
		return of(1, 1, map[string]int{"mol": 1})
	case "Wh":
		return of(3600000, 1, map[string]int{"g": 1, "m": 2, "s": -2})
	case "eV", "F", "T", "bit":
		return of(1, 1, map[string]int{name: 1})
	}
	if utf8.RuneCountInString(name) < 2 {
		return single{}, false
	}
	name = strings.ToLower(name)
	if len(name) > 3 && name != "hertz" {
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "meter", "metre":
		return of(1, 1, length)
	case "gram":
		return of(1, 1, mass)
	case "ton", "tonne":
		return of(1e6, 1, mass)
	case "second", "sec", "secs":
		return of(1, 1, time)
	case "minute", "min", "mins":
		return of(60, 1, time)
	case "hour", "hr", "hrs":
		return of(3600, 1, time)
	case "day":
		return of(86400, 1, time)
	case "week":
		return of(604800, 1, time)
	case "month":
		return of(1, 1, map[string]int{"month": 1})
	case "year", "yr", "yrs":
		return of(12, 1, map[string]int{"month": 1})
	case "liter", "litre":
		return of(1, 1000, volume)
	case "inch", "inche", "in":
		return of(254, 10000, length)
	case "foot", "feet", "ft":
		return of(3048, 10000, length)
	case "yard", "yd", "yds":
		return of(9144, 10000, length)
	case "mile", "mi":
		return of(1609344, 1000, length)
	case "acre":
		return of(40468564224, 10000000, area)
	case "hectare", "ha":
		return of(10000, 1, area)
	case "ounce", "oz":
		return of(28349523125, 1000000000, mass)
	case "pound", "lb", "lbs":
		return of(45359237, 100000, mass)
	case "pint":
		return of(1, 8, map[string]int{"gal": 1})
	case "quart":
		return of(1, 4, map[string]int{"gal": 1})
	case "gallon", "gal":
		return of(1, 1, map[string]int{"gal": 1})
	case "mph":
		return of(1609344, 3600000, map[string]int{"m": 1, "s": -1})
	case "kph", "kmh", "kmph":
		return of(1000, 3600, map[string]int{"m": 1, "s": -1})
	case "knot", "calorie", "cal", "bar", "atm", "degree", "deg", "radian", "rad", "byte", "decibel":
		return of(1, 1, map[string]int{cmp.Or(map[string]string{"calorie": "cal", "degree": "deg",
			"radian": "rad"}[name], name): 1})
	case "newton", "joule", "watt", "volt", "ampere", "amp", "hertz", "pascal", "ohm", "kelvin", "mole", "coulomb",
		"farad", "tesla":
		return symbol(map[string]string{"newton": "N", "joule": "J", "watt": "W", "volt": "V", "ampere": "A",
			"amp": "A", "hertz": "Hz", "pascal": "Pa", "ohm": "Ω", "kelvin": "K", "mole": "mol", "coulomb": "C",
			"farad": "F", "tesla": "T"}[name])
	case "dollar", "usd", "buck":
		return of(100, 1, map[string]int{"cent": 1})
	case "cent", "penny", "pennie":
		return of(1, 1, map[string]int{"cent": 1})
	case "euro", "eur":
		return of(1, 1, map[string]int{"euro": 1})
	}
	return single{}, false
}
