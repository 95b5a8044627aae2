package question

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// AskedUnit returns the unit that the last sentence of the question asks for, or the zero Unit:
// "how many kJ", "in km/h".
func (q *Question) AskedUnit() measure.Unit {
	if q.asked == nil {
		found := q.askedUnit()
		q.asked = &found
	}
	return *q.asked
}

func (q *Question) askedUnit() measure.Unit {
	if len(q.lower) != len(q.Text) || q.last == "" {
		return measure.Unit{}
	}
	at := strings.LastIndex(q.lower, q.last)
	if at < 0 {
		return measure.Unit{}
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
			if u := unitAt(last[i+len(phrase):]); u.Known() {
				return u
			}
			if rest = rest[:i]; phrase == "how many " { // of something else
				return measure.Unit{}
			}
		}
	}
	return measure.Unit{}
}

// unitAt returns the longest unit of up to four words at the start of s.
func unitAt(s string) measure.Unit {
	s, _, _ = strings.Cut(s, ",")
	fields := strings.Fields(s)
	if len(fields) > 1 && words.Begins(strings.ToLower(fields[0]), "degree") &&
		words.OneOf(strings.ToLower(strings.Trim(fields[1], ".?;:")), "celsius", "fahrenheit", "c", "f") {
		return measure.Unit{} // a temperature
	}
	for n := min(4, len(fields)); n > 0; n-- {
		name := strings.Trim(strings.Join(fields[:n], " "), ".?;: ")
		if len(name) < 2 && (n < len(fields) || !strings.Contains("mgshL", name)) || name == "in" || name == "ha" {
			continue
		}
		if u := measure.Of(name); u.Known() {
			return u
		}
	}
	return measure.Unit{}
}

// Angular reports whether an angle, or a temperature, may answer the question.
func (q *Question) Angular() bool {
	return q.Asks("degree", "angle", "temperature", "celsius", "fahrenheit", "hot", "cold", "rotat", "turn",
		"arc", "sector",
		"polygon", "gon", "lateral", "parallel", "trapez", "rhombus", "bearing", "direction", "latitude", "longitude",
		"inclin", "polar", "phase", `\theta`, "θ", `\alpha`, `\beta`, `\phi`, "clock", "∠") ||
		q.Asks("°", `\circ`) && !q.LastHas("evaluate", "value of", "compute", "calculate", "how many", "how much",
			`what is $\cos`, `what is $\sin`, `what is $\tan`, `find $\cos`, `find $\sin`, `find $\tan`)
}

// asksPer reports whether the question has the unit called name after "per" or a slash. It is true as well
// if the question has no unit there, or name is no known unit.
func (q *Question) asksPer(name string) bool {
	if q.per == nil {
		q.per = []measure.Unit{}
		fields := strings.FieldsFunc(strings.ReplaceAll(q.lower, "/", " per "),
			func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		for i, f := range fields[min(1, len(fields)):] {
			if u := measure.Of(f); fields[i] == "per" && u.Known() && !slices.Contains(q.per, u) {
				q.per = append(q.per, u)
			}
		}
	}
	want := measure.Of(name)
	return len(q.per) == 0 || !want.Known() || slices.Contains(q.per, want)
}

// unitsByWord returns the units that words of the question name, by word. Callers must not
// modify the result.
func (q *Question) unitsByWord() map[string]measure.Unit {
	if q.units == nil {
		q.units = map[string]measure.Unit{}
		for word := range q.words {
			if u := measure.Of(word); u.Known() && word != "in" && (len(word) > 1 || q.measures(word)) {
				q.units[word] = u
			}
		}
	}
	return q.units
}

// measures reports whether a letter is a unit after a number of the question: 24 m.
func (q *Question) measures(letter string) bool {
	last := ""
	for _, f := range strings.Fields(q.lower) {
		if strings.Trim(f, ".,?$") == letter && expr.DigitAt(last, len(last)-1) {
			return true
		}
		last = strings.TrimRight(f, `$\,~`)
	}
	return words.Contains(q.lower, `\text{`+letter+"}", `\text{ `+letter+"}", `\mathrm{`+letter+"}")
}

// UnitLike returns the only unit of the question that measures what u does, or the zero Unit.
func (q *Question) UnitLike(u measure.Unit) (found measure.Unit) {
	for _, other := range q.unitsByWord() {
		switch {
		case other.Dimension != u.Dimension || other == found || u.Dimension == "cent^1": // $5 and 50 cents
		case found.Known():
			return measure.Unit{}
		default:
			found = other
		}
	}
	return found
}

// Measures reports whether the last sentence asks for a quantity that counts nothing: a length, a
// price.
func (q *Question) Measures() bool {
	return q.Text != "" && !q.LastHas("how many", "number of") &&
		(slices.ContainsFunc(q.kinds(), func(kind string) bool {
			return kind != "rate" && kind != "speed"
		}) || q.LastHas("how far", "how tall", "what is the cost", "what is the price", "how much does", "how old",
			"how heavy"))
}

// kinds returns the kinds of quantity (measure.Kind) that words of the last sentence ask for: rates,
// lengths, areas, volumes, and counts.
func (q *Question) kinds() (kinds []string) {
	asked := q.wanted()
	for _, row := range [][]string{
		{"rate", "how fast", "speed", "velocity", "pace", " rate", " per ", "/", "each", "every", "average",
			"dail", "week"},
		{"speed", "how fast", "speed", "velocity", "pace", " rate", " per ", "/", "average"},
		{"length", "how far", "distance", "perimeter", "circumference", "radius", "diameter", "height", "width",
			"how tall", "how high", "how deep", "how wide", "length"},
		{"area", " area", "square cent", "square m", "square f", "square i"},
		{"volume", "volume", "cubic"},
		{"angle", "angle "},
		{"mass", "weigh", "how heavy", " mass"},
	} {
		if words.Contains(asked, row[1:]...) {
			kinds = append(kinds, row[0])
		}
	}
	if strings.Contains(asked, "how long") && q.UnitLike(measure.Of("meter")).Known() {
		kinds = append(kinds, "length")
	}
	if _, rest, ok := strings.Cut(q.last, "how many "); ok {
		kind := counted(rest)
		if kind != "" {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// counted returns the kind of the unit among the words after "how many", as in "how many more
// hours", "count" if there is none, or "" for an area or a volume.
func counted(rest string) string {
	fields := strings.Fields(rest)
	for _, f := range fields[:min(3, len(fields))] {
		f = strings.Trim(f, ".,?$")
		switch {
		case f == "square" || f == "cubic":
			return ""
		case measure.IsUnit(f):
			return measure.Kind(f)
		}
	}
	return "count"
}

// AsksBase reports whether the question asks for a number in base.
func (q *Question) AsksBase(base string) bool {
	decimal := q.Asks("to decimal", "in decimal", "to base 10", "in base 10", "to base ten", "in base ten")
	if base != "10" && (decimal || q.Asks("to a decimal")) {
		return false
	}
	names := []string{base, "$" + base}
	if k, err := strconv.Atoi(base); err == nil && k > 1 && k < 20 {
		names = append(names, expr.Numerals()[k])
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
		return decimal || q.Asks("into decimal")
	case "16":
		return q.Asks("hex")
	}
	return false
}

// OtherKind reports whether a unit measures another kind of quantity than the question asks
// for: km/h for a distance, square metres for a volume.
func (q *Question) OtherKind(name string) bool {
	kinds, kind := q.kinds(), measure.Kind(name)
	counts, moves := slices.Equal(kinds, []string{"count"}), q.wantedHas("speed", "how fast", "velocity")
	asks := func(kind string) bool { return slices.Contains(kinds, kind) }
	switch {
	case len(kinds) == 0, asks(kind), !counts && q.wantedHas(strings.ToLower(name)):
		return false
	case counts && kind != "":
		return true
	}
	switch kind {
	case "time":
		return moves
	case "rate", "speed":
		return true
	case "area", "length", "volume", "mass":
		return moves || asks("area") || asks("angle") || kind != "volume" && asks("volume") ||
			kind != "length" && asks("length")
	}
	return false
}

// Foreign reports whether a unit measures what neither the units nor the words of the
// question are about: kilograms for an area.
func (q *Question) Foreign(name string) bool {
	u, aspects := measure.Of(name), aspects(measure.Kind(name))
	if measure.Kind(name) == "temperature" && q.Asks("celsius", "fahrenheit", "°c", "°f") && !q.Asks("kelvin") {
		return true
	}
	if q.Text == "" || aspects == nil || strings.ContainsAny(name, "^/ ") {
		return false
	}
	for _, other := range q.unitsByWord() {
		if other.Dimension == u.Dimension {
			return false
		}
	}
	return !q.Asks(aspects...)
}

// aspects returns words of questions that a quantity of a kind answers.
func aspects(kind string) []string {
	return map[string][]string{
		"money": {"$", "£", "€", "cost", "price", "pay", "spen", "earn", "money", "profit", "salary", "wage",
			"income", "revenue", "charge", "worth", "bill", "budget", "sav", "change", "make", "sell", "sold", "buy",
			"interest", "value", "owe", "rais", "loan", "tip", "tax", "fee", "account"},
		"time": {"how long", "time", "when", "old", "age", "year", "month", "duration", "late", "early", "am", "pm",
			"clock", "night", "noon"},
		"length": {"far", "long", "tall", "high", "height", "length", "width", "wide", "distance", "perimeter",
			"radius", "diameter", "circumference", "deep", "depth", "side", "triangle", "circle", "square", "rectangle",
			"area", "volume"},
		"mass":        {"weigh", "heav", "mass"},
		"volume":      {"water", "milk", "juice", "tank", "liquid", "volume", "much"},
		"temperature": {"temperature", "degree", "hot", "cold", "°"},
		"angle":       {"angle", `\sin`, `\cos`, `\tan`, "circ", "degree"},
	}[kind]
}

// Fits reports whether the question names the parts of a compound unit such as km/h and
// m^2, or no other unit of the same kind.
func (q *Question) Fits(name string) bool {
	if q.Text == "" {
		return true
	}
	if measure.Kind(name) == "angle" {
		return q.Asks("radian", `\sin`, `\cos`, `\tan`) && !q.Asks("in degrees", "to degrees")
	}
	if measure.IsUnit(name) && !strings.ContainsAny(name, "^/ ") || name == "miles/hour" && q.Asks("mph") {
		return true // compared by its size
	}
	name = strings.NewReplacer("^2", "", "^3", "", "square ", "", "cubic ", "", " per ", "/").Replace(
		strings.ToLower(name))
	parts := strings.Split(name, "/")
	if len(parts) == 2 && q.LastHas("one "+parts[1], "each "+parts[1], "a "+parts[1], "every "+parts[1]) {
		return true
	}
	if len(parts) == 2 && (!q.asksPer(parts[1]) || !q.asksRate()) {
		return false
	}
	return !slices.ContainsFunc(parts, func(part string) bool {
		u := measure.Of(part)
		like := q.UnitLike(u)
		return u.Known() && like.Known() && like != u
	})
}
