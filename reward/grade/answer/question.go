package answer

import (
	"math/big"
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Question is what a question says about the form of its answer. The zero Question says
// nothing. It is not safe for concurrent use.
type Question struct {
	Text     string
	Formulas func() []string // the mathematics and numbers in Text; may be nil

	read  bool
	lower string
	words map[string]bool
	keys  map[string]bool // of the formulas and their parts
	alone map[string]bool // of formulas that are not equations
	given map[string]bool // numbers as written

	symbols map[string]bool // in formulas
	offered map[string]bool // words that are alternatives
}

// The reasons why a response is not right.
const (
	NoAnswer   = "no answer"
	Several    = "several answers"
	OtherValue = "another value"
	OtherUnit  = "another unit"
	OtherForm  = "another form than the question asks for"
	Unfinished = "unfinished: it still has to be evaluated or solved"
	Echo       = "repeats the question"
	Altered    = "the words around the value change it"
)

// maxFormulas bounds the formulas of a question that are read.
const maxFormulas = 64

// prepare reads the text once.
func (q *Question) prepare() {
	if q.read {
		return
	}
	q.read, q.lower = true, strings.ToLower(q.Text)
	q.words, q.keys, q.alone, q.given, q.symbols = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, word := range strings.FieldsFunc(q.lower, func(r rune) bool { return !unicode.IsLetter(r) }) {
		q.words[singular(word)] = true
	}
	q.offered = alternatives(q.lower)
	if q.Formulas == nil {
		return
	}
	for i, formula := range q.Formulas() {
		if i == maxFormulas {
			break
		}
		formula = markup.Clean(formula)
		if len(formula) > maxAnswer {
			continue
		}
		for _, part := range append([]string{formula}, strings.Split(formula, ",")...) {
			if n, ok := expr.Parse(part, expr.Mode{Thousands: true}); ok {
				q.add(n, part)
			}
		}
	}
}

func (q *Question) add(n *expr.Node, text string) {
	if algebra.Literal(n) {
		q.given[markup.Compact(text)] = true
		return
	}
	if n.Kind != expr.Relation {
		q.alone[algebra.Key(n)] = true
	}
	n.Has(func(m *expr.Node) bool {
		if m.Kind == expr.Symbol {
			q.symbols[algebra.Key(m)] = true
		}
		if len(m.Args) > 0 && m.Kind != expr.Unit && !algebra.Literal(m) {
			q.keys[algebra.Key(m)] = true
		}
		return false
	})
}

// asks reports whether the question contains one of the words.
func (q *Question) asks(words ...string) bool {
	q.prepare()
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(q.lower, word) })
}

// last returns the last sentence of the question in lower case.
func (q *Question) last() string {
	q.prepare()
	text := strings.TrimRight(q.lower, " .?!\n")
	return text[max(strings.LastIndex(text, ". "), strings.LastIndex(text, "? "), strings.LastIndex(text, "\n"), 0):]
}

func (q *Question) lastHas(words ...string) bool {
	last := q.last()
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(last, word) })
}

// Opposes reports whether a sentence speaks of the opposite of what the question asks for,
// as "it gains 24 minutes" does if it asks how many it loses.
func (q *Question) Opposes(sentence string) bool {
	if q.Text == "" {
		return false
	}
	last, lower := " "+q.last(), " "+strings.ToLower(sentence)
	_, want, asks := strings.Cut(last, "coefficient of ")
	if _, got, says := strings.Cut(lower, "coefficient of "); asks && says && strings.HasPrefix(want, "$") {
		want, _, _ = strings.Cut(want[1:], "$")
		return !strings.HasPrefix(strings.TrimLeft(got, "$"), want+"$")
	}
	for _, pair := range opposites() {
		for i, asked := range pair {
			if strings.Contains(last, " "+asked) && !strings.Contains(last, " "+pair[1-i]) && strings.Contains(lower, " "+pair[1-i]) && !strings.Contains(lower, " "+asked) {
				return true
			}
		}
	}
	return false
}

// opposites returns the beginnings of words that exclude each other.
func opposites() [][2]string {
	return [][2]string{{"gain", "lose"}, {"winn", "lose"}, {"won ", "lost "}, {"profit", "loss"}, {"increase", "decrease"}, {"rise", "fall"}, {"north", "south"}, {"east", "west"}, {"above", "below"},
		{"largest", "smallest"}, {"oldest", "youngest"}, {"highest", "lowest"}, {"happen", "fail"}}
}

// asksShare reports whether a percentage may answer the question.
func (q *Question) asksShare() bool {
	last := q.last()
	for _, word := range []string{"percent", "probability", "chance", "likel", "odds", "%"} {
		if strings.Contains(last, word) {
			return !strings.Contains(last, "what is "+word) && !strings.Contains(last, "% of ") || strings.Contains(last, "percent")
		}
	}
	return q.asks("percent", "%") && !q.asks("how many", "how much")
}

// alternatives returns the words next to an "or" of a text, and those before the commas
// of a list that ends in one.
func alternatives(lower string) map[string]bool {
	found := map[string]bool{}
	for at := 0; ; {
		i := strings.Index(lower[at:], " or ")
		if i < 0 {
			return found
		}
		at += i
		next := strings.Fields(lower[at+len(" or "):])
		if len(next) > 0 {
			found[strings.Trim(next[0], ".,?!;:\"'")] = true
			if len(next) > 1 && slices.Contains([]string{"the", "a", "an"}, next[0]) {
				found[strings.Trim(next[1], ".,?!;:\"'")] = true
			}
		}
		before := lower[:at]
		for range 6 {
			before = strings.TrimRight(before, " ,\"'")
			cut := strings.LastIndexAny(before, " ,\"'(")
			found[before[cut+1:]] = true
			comma := strings.LastIndexByte(before, ',')
			if comma < 0 || strings.ContainsAny(before[comma:], ".?!") || len(strings.Fields(before[comma:])) > 4 {
				break
			}
			before = before[:comma]
		}
		at += len(" or ")
	}
}

// names reports whether a formula of the question has the symbol.
func (q *Question) names(symbol string) bool {
	q.prepare()
	return q.symbols[symbol] || q.symbols[algebra.Key(expr.Named(symbol))]
}

// has reports whether a word, or its plural, is in the question.
// AsksRate reports whether the question asks for a rate.
func (q *Question) AsksRate() bool {
	return q.lastHas("speed", "rate", "/", "mph", "average", "fast", "per ", "pace", "each", "every", "density", "dail", "week", "month", "hourly", "day")
}

// AsksSlope reports whether the question is about a derivative.
func (q *Question) AsksSlope() bool {
	return q.asks("derivative", "differentiate", "slope", "rate of change", "tangent", "prime")
}

// OtherQuantity reports whether the text before a value calls it a quantity, such as an
// area, and the last sentence of the question names only others.
func (q *Question) OtherQuantity(text string) bool {
	text = strings.TrimRight(strings.ToLower(text), " $*\\(")
	head, ok := strings.CutSuffix(text, " is")
	if !ok {
		head, ok = strings.CutSuffix(text, " equals")
	}
	if q.prepare(); q.Text == "" || !ok {
		return false
	}
	if at := strings.LastIndex(head, " of "); at >= 0 && !strings.ContainsAny(head[at:], ",.;:") {
		head = head[:at]
	}
	last := q.last()
	return slices.ContainsFunc(quantities(), func(name string) bool { return strings.HasSuffix(head, name) && !strings.Contains(last, name) }) &&
		slices.ContainsFunc(quantities(), func(name string) bool { return strings.Contains(last, name) })
}

// quantities returns names of quantities of which one is not another.
func quantities() []string {
	return []string{"area", "perimeter", "circumference", "radius", "diameter", "volume", "speed", "distance", "slope", "intercept", "median", "mean", "numerator", "denominator", "hypotenuse",
		"width", "height", "remainder", "quotient", "product", "sum", "difference"}
}

// Has reports whether a word, or its plural, is in the question.
func (q *Question) Has(word string) bool { return q.has(word) }

func (q *Question) has(word string) bool {
	q.prepare()
	return q.words[singular(word)] || q.words[singular(strings.TrimSuffix(word, "s"))]
}

// transforms reports whether the question asks for another form of an expression.
func (q *Question) transforms() bool {
	return q.asks("simplif", "expand", "factor", "rationali", "express ", "write ", "rewrite", "convert", "in the form", "in terms of",
		"reduce", "partial fraction", "complete the square", "completing the square", "multiply out", "solve for", "standard form",
		"slope-intercept", "vertex form", "lowest terms", "simplest", "equivalent", "cancel")
}

// form returns why got, written as text, is not an answer to the question although it
// has the value of want, or "".
func (q *Question) form(want, got *expr.Node, text string) string {
	w, g := unlabelled(want), unlabelled(got)
	if algebra.Literal(w) && !algebra.Literal(g) && g.Kind < expr.Bracket {
		return Unfinished
	}
	if algebra.Divides(g) && !algebra.Divides(w) {
		return Unfinished
	}
	allowed := algebra.Pending(w)
	for _, part := range parts(g) {
		for name := range algebra.Pending(part) {
			if !allowed[name] {
				return Unfinished
			}
		}
	}
	if q.asks("exact") && algebra.Literal(w) && notation(w) == "fraction" && notation(g) == "decimal" && !algebra.Exact(w, g) {
		return OtherValue
	}
	if allowed["product"] && isConstant(w) && isConstant(g) && algebra.Leaves(g) < algebra.Leaves(w) && !algebra.Literal(g) {
		return Unfinished // 2 × 45
	}
	key := algebra.Key(g)
	if key == algebra.Key(w) && !(algebra.Literal(w) && q.transforms()) {
		return ""
	}
	if q.prepare(); q.keys[key] {
		return Echo
	}
	if !q.transforms() && !q.asks("decimal", "mixed number") {
		return ""
	}
	if algebra.Literal(w) {
		text = markup.Compact(text)
		switch factor, tens := algebra.Mantissa(g); {
		case q.given[text] && notation(g) != notation(w):
			return Echo
		case tens && q.asks("scientific") && (factor.Cmp(big.NewRat(10, 1)) >= 0 || factor.Cmp(big.NewRat(1, 1)) < 0):
			return OtherForm
		}
		if q.reduces() && algebra.Reduced(w) && !algebra.Reduced(g) {
			return Unfinished
		}
		if notation(w) == "mixed" && notation(g) != "mixed" && q.asks("mixed") {
			return OtherForm
		}
		if notation(w) == "decimal" && notation(g) == "fraction" && q.asks("as a decimal", "decimal form", "in decimal", "to a decimal", "equivalent decimal", "decimal equivalent", "decimal number", "terminating decimal", "a decimal") {
			return OtherForm
		}
		return ""
	}
	if q.reduces() && algebra.Reduced(w) && !algebra.Reduced(g) {
		return Unfinished
	}
	switch {
	case algebra.Squares(g) < algebra.Squares(w), q.asks("in terms of", "only") && !algebra.SameFunctions(w, g):
		return OtherForm
	case w.Kind == expr.Relation:
		if explicit(w) && !explicit(g) {
			return OtherForm
		}
	case w.Kind == expr.Product || w.Kind == expr.Power:
		if algebra.Factors(g) < algebra.Factors(w) && !algebra.Expanded(w) {
			return OtherForm
		}
	case w.Kind == expr.Sum && algebra.Expanded(w) && !algebra.Expanded(g):
		return OtherForm
	}
	if q.asks("rationali") && algebra.Rationalized(w) && !algebra.Rationalized(g) {
		return OtherForm
	}
	if q.asks("simpl") && algebra.Leaves(g) > algebra.Leaves(w)*3/2+2 {
		return Unfinished
	}
	return ""
}

// target returns the key of the quantity that the question asks for by name: the last
// after "find", "what is" and the like, or "".
func (q *Question) target() string {
	q.prepare()
	best, at := "", -1
	for _, phrase := range []string{"find $", "what is $", "value of $", "compute $", "determine $", "evaluate $", "calculate $", "solve for $", "find the value of $", "find \\(", "what is \\(", "value of \\("} {
		i := strings.LastIndex(q.lower, phrase)
		if i <= at {
			continue
		}
		inside := q.Text[min(len(q.Text), i+len(phrase)):]
		if len(q.Text) != len(q.lower) {
			continue
		}
		if end := strings.IndexAny(inside, "$"); end > 0 && !strings.HasSuffix(phrase, "(") {
			inside = inside[:end]
		} else if end := strings.Index(inside, `\)`); end > 0 {
			inside = inside[:end]
		}
		if n, ok := expr.Parse(markup.Clean(inside), expr.Mode{}); ok && n.Kind != expr.Relation && n.Kind != expr.List {
			best, at = algebra.Key(n), i
		}
	}
	return best
}

// misnames reports whether a response gives its value to another quantity of the
// question than the one asked for.
func (q *Question) misnames(head *expr.Node) bool {
	if q.Text == "" {
		return false
	}
	if head.Kind == expr.Call && len(head.Name) == 1 && q.asks("derivative of") {
		return true
	}
	target, key := q.target(), algebra.Key(head)
	known := !head.Has(func(n *expr.Node) bool { return n.Kind == expr.Symbol && !q.symbols[algebra.Key(n)] })
	return target != "" && key != target && (q.keys[key] || known && head.Kind <= expr.Call)
}

// defines reports whether the left side of an equation is a quantity of the question, as
// in "x + y = 5" if it asks for x + y. An equation of the question defines nothing.
func (q *Question) defines(n *expr.Node) bool {
	head := n.Args[0]
	if isConstant(head) {
		return false
	}
	if q.Text == "" {
		return true
	}
	q.prepare()
	if algebra.Key(head) == q.target() {
		return true
	}
	if q.keys[algebra.Key(n)] || head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }) && !q.alone[algebra.Key(head)] && !q.asks("derivative", "differentiate", "slope", "rate of change", "f'") {
		return false
	}
	if head.Has(func(m *expr.Node) bool { return m.Kind == expr.Call && m.Name == "prime" }) {
		return true
	}
	return q.alone[algebra.Key(head)] || algebra.Variables(head) > 1 && !head.Has(func(m *expr.Node) bool { return m.Kind == expr.Power }) || head.Has(func(m *expr.Node) bool { return m.Is("pi") })
}

// reduces reports whether the question asks for lowest terms or simplest roots.
func (q *Question) reduces() bool {
	return q.asks("lowest terms", "simpl", "reduce", "common fraction", "m+n", "relatively prime")
}

// unlabelled returns n without words and units around it.
func unlabelled(n *expr.Node) *expr.Node {
	for n.Kind == expr.Unit || n.Kind == expr.Label {
		n = n.Args[0]
	}
	return n
}

// parts returns what an inequality or equation says about its name, or n itself.
func parts(n *expr.Node) (all []*expr.Node) {
	if n.Kind != expr.Relation {
		return []*expr.Node{n}
	}
	for _, arg := range n.Args {
		if !isName(arg) {
			all = append(all, arg)
		}
	}
	return all
}

// explicit reports whether an equation states one variable in terms of others.
func explicit(n *expr.Node) bool {
	return n.Kind == expr.Relation && len(n.Args) == 2 && n.Args[0].Kind == expr.Symbol && !n.Args[1].Has(func(m *expr.Node) bool { return m.Is(n.Args[0].Name) })
}

// notation returns how a number is written: as a decimal, a fraction, an integer or a
// power of ten.
func notation(n *expr.Node) string {
	switch {
	case n.Kind == expr.Number && n.Base != "":
		return "base"
	case n.Kind == expr.Number && n.Places > 0:
		return "decimal"
	case n.Kind == expr.Number && n.Digits == "":
		return "mixed"
	case n.Kind == expr.Number:
		return "integer"
	case n.Kind == expr.Unit:
		return n.Name + notation(n.Args[0])
	case n.Has(func(m *expr.Node) bool { return m.Kind == expr.Number && m.Digits == "10" }):
		return "power"
	}
	return "fraction"
}

// singular returns a word without the s of a plural.
func singular(word string) string {
	if len(word) > 3 {
		return strings.TrimSuffix(word, "s")
	}
	return word
}

// asked returns the unit in which the question asks for a number, or the zero unit.
func (q *Question) asked() measure.Unit {
	q.prepare()
	fields := strings.FieldsFunc(q.lower, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' && r != '?' })
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
		case f == "in" && found.Num == 0 && next(1).Num > 0 && len(fields[i+1]) > 2 && strings.HasSuffix(fields[i+1], "s?"):
			found = next(1)
		case f == "of" && next(1).Num > 0 && i > 0 && fields[i-1] == "number":
			found = next(1)
		}
	}
	return found
}

// asksRegion reports whether the question asks for an area or a volume.
func (q *Question) asksRegion() bool {
	return q.lastHas("the area", "the volume", "surface area", "square cent", "square m", "square f", "square i", "cubic") &&
		!q.lastHas("length", "side", "radius", "height", "width", "edge", "diameter", "perimeter", "long", "tall", "high", "deep", "wide")
}

// foreign reports whether a unit measures what neither the units nor the words of the
// question are about: kilograms for an area.
func (q *Question) foreign(u measure.Unit) bool {
	if q.prepare(); q.Text == "" || u.Num == 0 {
		return false
	}
	_, dimension, ok := strings.Cut(u.Dimension, " ")
	if !ok {
		dimension = u.Dimension
	}
	for word := range q.words {
		if other := measure.UnitOf(word); other.Num > 0 && strings.HasSuffix(other.Dimension, dimension) {
			return false
		}
	}
	return !q.asks(aspects(dimension)...)
}

// aspects returns words of questions that a quantity of a dimension answers.
func aspects(dimension string) []string {
	switch dimension {
	case "money":
		return []string{"$", "£", "€", "cost", "price", "pay", "spen", "earn", "money", "profit", "salary", "wage", "income", "revenue", "charge", "worth", "bill", "budget", "sav", "change", "make", "sell", "sold", "buy", "interest", "value", "owe", "rais", "loan", "tip", "tax", "fee", "account"}
	case "time":
		return []string{"how long", "time", "when", "old", "age", "year", "month", "duration", "late", "early", "am", "pm", "clock", "night", "noon"}
	case "length":
		return []string{"far", "long", "tall", "high", "height", "length", "width", "wide", "distance", "perimeter", "radius", "diameter", "circumference", "deep", "depth", "side", "triangle", "circle", "square", "rectangle", "area", "volume"}
	case "mass":
		return []string{"weigh", "heav", "mass"}
	case "volume":
		return []string{"water", "milk", "juice", "tank", "liquid", "volume", "much"}
	}
	return nil
}

// fits reports whether the question names the parts of a compound unit such as km/h and
// m^2, or no other unit of the same kind.
func (q *Question) fits(name string) bool {
	if q.prepare(); q.Text == "" {
		return true
	}
	if name == "radians" || name == "radian" || name == "rad" {
		return q.asks("radian")
	}
	if measure.UnitOf(name).Num > 0 {
		return true // compared by its size
	}
	if name == "miles/hour" && q.asks("mph") {
		return true
	}
	name = strings.NewReplacer("^2", "", "^3", "", "square ", "", "cubic ", "", " per ", "/").Replace(strings.ToLower(name))
	parts := strings.Split(name, "/")
	if len(parts) == 2 && (!q.rate(parts[1]) || !q.AsksRate()) {
		return false
	}
	for _, part := range parts {
		u := measure.UnitOf(part)
		if u.Num == 0 || q.mentions(u) {
			continue
		}
		for word := range q.words {
			if other := measure.UnitOf(word); other.Num > 0 && other.Dimension == u.Dimension && len(word)+len(part) > 2 {
				return false
			}
		}
	}
	return true
}

// rate reports whether the question asks for something per unit, or for no rate at all.
func (q *Question) rate(per string) bool {
	q.prepare()
	want, found := measure.UnitOf(per), false
	fields := strings.FieldsFunc(strings.ReplaceAll(q.lower, "/", " per "), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, f := range fields {
		if f == "per" && i+1 < len(fields) {
			u := measure.UnitOf(fields[i+1])
			if fields[i+1] == "h" {
				u = measure.UnitOf("hour")
			}
			if u.Num > 0 && u == want {
				return true
			}
			found = found || u.Num > 0
		}
	}
	return !found || want.Num == 0
}

// option returns the text of a choice that the question offers, or "".
func (q *Question) option(letter byte) string {
	for _, form := range []string{"(%c)", "%c)", "%c.", "%c:"} {
		mark := strings.Replace(form, "%c", string(letter), 1)
		_, rest, ok := strings.Cut(q.Text, mark)
		if !ok {
			continue
		}
		next := strings.Replace(form, "%c", string(letter+1), 1)
		rest, _, _ = strings.Cut(rest, next)
		rest, _, _ = strings.Cut(rest, "\n")
		return strings.Trim(rest, " ,;.\\$")
	}
	return ""
}

// mentions reports whether the question names a unit.
func (q *Question) mentions(u measure.Unit) bool {
	q.prepare()
	for word := range q.words {
		if measure.UnitOf(word) == u {
			return true
		}
	}
	return u == measure.UnitOf("dollar") && strings.Contains(q.Text, "$")
}

// alters reports whether words around a value change what it says. It allows a comparison
// that the question asks for: "how many more".
func (q *Question) alters(name string) bool {
	if !words.Alters(name) {
		return false
	}
	if strings.HasSuffix(name, "are not") && (q.Text == "" || q.lastHas("not", "n't", "without", "left", "remain", "fail", "miss", "other")) {
		return false
	}
	if slices.Contains(strings.Fields(name), "each") && !words.Alters(strings.ReplaceAll(name, "each", "")) && (q.lastHas("each", " per ", "every") || !q.lastHas("altogether", "in all", "total")) || strings.HasSuffix(name, "ago") && (q.Text == "" || q.asks("ago", "born", "how long")) {
		return false
	}
	if q.Text == "" && strings.HasSuffix(name, " than") || name == "times" && q.Text == "" || strings.HasSuffix(name, "times") && q.asks("many times") {
		return false
	}
	if at := strings.LastIndex(q.lower, "how "); at >= 0 || q.Text == "" {
		for _, way := range []string{"north", "south", "east", "west"} {
			if strings.Contains(name, way) && (q.Text == "" || strings.Contains(q.lower[at:], way)) {
				return false
			}
		}
	}
	for _, f := range strings.Fields(strings.ToLower(name)) {
		if words.Alters(f) && q.asks("many "+f, "number of "+f) {
			return false
		}
	}
	if last := q.last(); q.Text != "" {
		asked := true
		for _, f := range strings.Fields(strings.ToLower(name)) {
			compares := f == "than" || strings.HasSuffix(f, "er") || f == "more" || f == "less" || f == "short" || f == "over" || f == "above"
			asked = asked && (!words.Alters(f) && !compares || strings.Contains(last, f) && slices.Contains([]string{"least", "most", "too", "many", "short", "over", "above", "under", "below", "times", "minus"}, f) ||
				compares && slices.ContainsFunc([]string{"than", "exceed", "above", "difference", "increase", "decrease", "compar", "more", "less", "farther", "short", "far "}, func(word string) bool { return strings.Contains(last, word) }))
		}
		if asked {
			return false
		}
	}
	for _, f := range strings.Fields(strings.ToLower(name)) {
		if f == "than" || strings.HasSuffix(f, "er") || f == "more" || f == "less" {
			q.prepare()
			if at := strings.LastIndex(q.lower, "how m"); at >= 0 && strings.Contains(q.lower[at:], strings.TrimSuffix(f, "than")) && f != "than" {
				return false
			}
		}
	}
	return true
}

// plain reports whether the words around a number say no more than the question: names,
// Units and words of the question.
func (q *Question) plain(name string) bool {
	q.prepare()
	strange := 0
	for _, word := range words.Of(name) {
		if !q.has(word) && !measure.IsUnit(word) && !slices.Contains([]string{"therefore", "thus", "hence", "total", "in", "all", "altogether", "exactly", "of", "they", "have", "has", "he", "she", "there", "answer", "final",
			"we", "get", "equals", "units", "square", "cubic", "percent", "degrees", "this", "to", "at", "for", "by", "per", "value", "result", "only", "just", "now"}, word) {
			strange++
		}
	}
	return strange <= 2 || q.Text == "" && strange <= 4
}
