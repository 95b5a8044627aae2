package question

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// AskedUnit returns the unit in which the question asks for a number, or the zero unit.
func (q *Question) AskedUnit() measure.Unit {
	if q.asked == nil {
		found := asked(q.lower)
		q.asked = &found
	}
	return *q.asked
}

// AskedQuantity returns the quantity of the unit that the last sentence of the question asks for:
// "how many kJ", "in km/h". ok is false if there is none.
func (q *Question) AskedQuantity() (found measure.Quantity, ok bool) {
	if len(q.lower) != len(q.Text) || q.last == "" {
		return found, false
	}
	at := strings.LastIndex(q.lower, q.last)
	if at < 0 {
		return found, false
	}
	last := strings.NewReplacer("$", "", `\text`, "", `\mathrm`, "", "{", "", "}", "", "(", " ", ")",
		" ").Replace(q.Text[at : at+len(q.last)])
	lower := strings.ToLower(last)
	if strings.Contains(lower, "how old") && q.Asks("year") && !q.Asks("month", "week", "day") {
		return measure.Of("year")
	}
	phrases := []string{"how many ", " in ", "number of "}
	if words.Contains(lower, "convert", "change", "express") {
		phrases = []string{" to ", " into ", " in "}
	}
	for _, phrase := range phrases {
		for rest := lower; ; {
			i := strings.LastIndex(rest, phrase)
			if i < 0 {
				break
			}
			if u, ok := unitAt(last[i+len(phrase):]); ok {
				return u, true
			}
			rest = rest[:i]
		}
	}
	return found, false
}

// unitAt returns the quantity of the longest unit of up to four words at the start of s.
func unitAt(s string) (measure.Quantity, bool) {
	s, _, _ = strings.Cut(s, ",")
	fields := strings.Fields(s)
	if len(fields) > 1 && words.Begins(strings.ToLower(fields[0]), "degree") &&
		words.OneOf(strings.ToLower(strings.Trim(fields[1], ".?;:")), "celsius", "fahrenheit", "c", "f") {
		return measure.Quantity{}, false // a temperature
	}
	for n := min(4, len(fields)); n > 0; n-- {
		name := strings.Trim(strings.Join(fields[:n], " "), ".?;: ")
		if len(name) < 2 && (n < len(fields) || !strings.Contains("mgshL", name)) || name == "in" || name == "ha" {
			continue
		}
		if u, ok := measure.Of(name); ok {
			return u, true
		}
	}
	return measure.Quantity{}, false
}

// asked returns the unit in which a question in lower case asks for a number.
func asked(lower string) measure.Unit {
	fields := strings.FieldsFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '?' })
	found := measure.Unit{}
	for i, f := range fields {
		next := func(k int) measure.Unit {
			if i+k < len(fields) {
				return measure.UnitOf(strings.Trim(fields[i+k], ".?"))
			}
			return measure.Unit{}
		}
		switch {
		case f == "many" && i > 0 && fields[i-1] == "how" && next(1).Num > 0:
			found = next(1)
		case f == "many" && i > 0 && fields[i-1] == "how":
			found = measure.Unit{} // of something else
		case f == "in" && found.Num == 0 && next(1).Num > 0 && len(fields[i+1]) > 2 && words.Ends(fields[i+1], "s?", "s."):
			found = next(1)
		case f == "of" && next(1).Num > 0 && i > 0 && fields[i-1] == "number":
			found = next(1)
		}
	}
	return found
}

// Angular reports whether an angle, or a temperature, may answer the question.
func (q *Question) Angular() bool {
	return q.Asks("degree", "angle", "temperature", "celsius", "fahrenheit", "hot", "cold", "rotat", "turn", "arc", "sector",
		"polygon", "gon", "lateral", "parallel", "trapez", "rhombus", "bearing", "direction", "latitude", "longitude",
		"inclin", "polar", "phase", `\theta`, "θ", `\alpha`, `\beta`, `\phi`, "clock", "∠") ||
		q.Asks("°", `\circ`) && !q.LastHas("evaluate", "value of", "compute", "calculate", "how many", "how much")
}

// AsksPer reports whether the question asks for something per unit, or for no rate at all.
func (q *Question) AsksPer(per string) bool {
	if q.per == nil {
		q.per = []measure.Unit{}
		fields := strings.FieldsFunc(strings.ReplaceAll(q.lower, "/", " per "), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		for i, f := range fields[min(1, len(fields)):] {
			switch f {
			case "h":
				f = "hour"
			case "s":
				f = "second"
			}
			if u := measure.UnitOf(f); fields[i] == "per" && u.Num > 0 && !slices.Contains(q.per, u) {
				q.per = append(q.per, u)
			}
		}
	}
	want := measure.UnitOf(per)
	return len(q.per) == 0 || want.Num == 0 || slices.Contains(q.per, want)
}

// Mentions reports whether the question names a unit.
func (q *Question) Mentions(u measure.Unit) bool {
	for _, other := range q.Units() {
		if other == u {
			return true
		}
	}
	return u == measure.UnitOf("inch") && q.words["in"] || u == measure.UnitOf("dollar") && q.Asks("$")
}

// Units returns the units that words of the question name, by word. Callers must not
// modify the result.
func (q *Question) Units() map[string]measure.Unit {
	if q.units == nil {
		q.units = map[string]measure.Unit{}
		for word := range q.words {
			if u := measure.UnitOf(word); u.Num > 0 && word != "in" {
				q.units[word] = u
			}
		}
	}
	return q.units
}

// Kinds returns the kinds of quantity (measure.Kind) that the last sentence asks for as far as
// its words tell: rates, lengths, areas, volumes, and counts.
func (q *Question) Kinds() (kinds []string) {
	asked := q.wanted()
	for _, row := range [][]string{
		{"rate", "how fast", "speed", "velocity", "pace", " rate", " per ", "/", "each", "every", "average", "dail", "week"},
		{"length", "how far", "distance", "perimeter", "circumference", "radius", "diameter", "height", "width", "how tall", "how high", "how deep", "how wide", "length"},
		{"area", " area", "square cent", "square m", "square f", "square i"},
		{"volume", "volume", "cubic"},
	} {
		if words.Contains(asked, row[1:]...) {
			kinds = append(kinds, row[0])
		}
	}
	if _, rest, ok := strings.Cut(q.last, "how many "); ok {
		kind := counted(rest)
		if kind != "" {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// counted returns the kind of the unit among the words behind "how many", as in "how many more
// hours", "count" if there is none, or "" for an area or a volume.
func counted(rest string) string {
	fields := strings.Fields(rest)
	for _, f := range fields[:min(3, len(fields))] {
		f = strings.Trim(f, ".,?$")
		switch {
		case f == "square" || f == "cubic":
			return ""
		case measure.IsUnit(f) || measure.IsQuantity(f):
			return measure.Kind(f)
		}
	}
	return "count"
}

// AsksBase reports whether the question asks for a number in base.
func (q *Question) AsksBase(base string) bool {
	if base != "10" && q.Asks("to decimal", "in decimal", "to a decimal", "to base 10", "in base 10", "to base ten", "in base ten") {
		return false
	}
	names := []string{base, "$" + base}
	if k, err := strconv.Atoi(base); err == nil && k > 1 && words.Word(k) != "" {
		names = append(names, words.Word(k))
	}
	for _, name := range names {
		if q.Asks("in base "+name, "to base "+name, "into base "+name, "base-"+name) {
			return true
		}
	}
	switch base {
	case "2":
		return q.Asks("binary")
	case "8":
		return q.Asks("octal")
	case "10":
		return q.Asks("to decimal", "in decimal", "into decimal", "to base 10", "in base 10", "to base ten",
			"in base ten")
	case "16":
		return q.Asks("hex")
	}
	return false
}
