package words

import (
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
)

// Number reports whether a word in lower case is a number below twenty, a multiple of ten below a hundred,
// "hundred" or "half".
func Number(word string) bool {
	return slices.Contains(expr.Numerals(), word) || slices.Contains(tens()[2:], word) || word == "hundred" ||
		word == "half"
}

// tens returns the words for the multiples of ten, which begin at 2.
func tens() []string {
	return []string{"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
}

// Spelled rewrites a leading number in words as digits: "twenty five apples" becomes "25 apples". It
// reports whether s begins with such a number.
func Spelled(s string) (string, bool) {
	fields := strings.Fields(strings.ReplaceAll(strings.ToLower(markup.Bare(s)), "-", " "))
	fields = slices.DeleteFunc(fields, func(f string) bool { return strings.Trim(f, ".,") == "" })
	numerals := expr.Numerals()
	total, part, used := 0, 0, 0
	for _, f := range fields {
		f = strings.Trim(f, ".,")
		i, j := slices.Index(numerals, f), slices.Index(tens(), f)
		switch {
		case f == "half" && used == 0 && len(fields) > 1 && (fields[1] == "a" || fields[1] == "an"):
			return "1/2 " + strings.Join(fields[2:], " "), true
		case i >= 0:
			part += i
		case j >= 2:
			part += 10 * j
		case f == "hundred" && part < 100:
			part = 100 * max(1, part)
		case f == "thousand" && part < 1000 && total == 0:
			total, part = 1000*max(1, part), 0
		case f == "and" && part >= 100:
		case f == "and" && used > 0: // two and a half
			return mixed(total+part, used, fields)
		default:
			if den := denominator(f); den > 0 && used > 0 {
				return strconv.Itoa(total+part) + "/" + strconv.Itoa(den) + " " +
					strings.Join(fields[used+1:], " "), true
			}
			return digits(total+part, used, fields)
		}
		if used++; used > 12 {
			return "", false
		}
	}
	return digits(total+part, used, fields)
}

// denominator returns the denominator that a word such as thirds names, or 0.
func denominator(f string) int {
	for d, name := range []string{"half", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"} {
		if f == name || f == name+"s" || d == 0 && f == "halves" || d == 2 && (f == "quarter" || f == "quarters") {
			return d + 2
		}
	}
	return 0
}

// mixed rewrites a mixed number: "two and a half" becomes "2 1/2". v is the value of the first used fields.
func mixed(v, used int, fields []string) (string, bool) {
	rest := fields[used+1:]
	if len(rest) > 0 && rest[0] == "a" {
		rest = append([]string{"one"}, rest[1:]...)
	}
	if len(rest) > 1 {
		above, below := slices.Index(expr.Numerals(), rest[0]), denominator(strings.Trim(rest[1], ".,"))
		if above > 0 && below > above {
			return strconv.Itoa(v) + " " + strconv.Itoa(above) + "/" + strconv.Itoa(below) + " " +
				strings.Join(rest[2:], " "), true
		}
	}
	return digits(v, used, fields)
}

// digits returns v, followed by the fields after the first used ones.
func digits(v, used int, fields []string) (string, bool) {
	if used == 0 || used > len(fields) {
		return "", false
	}
	return strconv.Itoa(v) + " " + strings.Join(fields[used:], " "), true
}
