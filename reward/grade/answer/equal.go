// Package answer decides whether two answers to a mathematical question are equal:
// numbers, fractions, roots, intervals, sets, tuples, matrices, equations, ratios,
// choices and words.
//
// Time and memory are bounded for any text: long or large answers are compared only as
// text.
package answer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// maxAnswer is the longest answer, in bytes, that is parsed. Longer answers are
// compared only as text.
const maxAnswer = 4096

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
	Strange    = "words that neither the question nor a plain answer uses"
)

// Equal reports whether got is the same answer as want, whatever the question. Both are
// bare answers in LaTeX or plain text: "\frac{1}{2}", "$0.50", "x = 1/2".
func Equal(want, got string) bool { return Fault(&question.Question{}, want, got) == "" }

// Fault returns why got is not the answer want to the question, or "" if it is. Both are
// bare answers in LaTeX or plain text. Units, currencies and the name before an equals
// sign may appear on one side only.
func Fault(q *question.Question, want, got string) string {
	w, g := markup.Clean(want), markup.Clean(got)
	if w == "" || g == "" || strings.Contains(g, "~~") { // struck out
		return NoAnswer
	}
	if IsBlock(want) {
		return faultIf(!sameBlock(want, got), OtherValue)
	}
	if isCode(w) {
		return faultIf(!strings.EqualFold(w, g), OtherValue)
	}
	if same, ok := sameJSON(w, g); ok {
		return faultIf(!same, OtherValue)
	}
	if items, ok := series(w); ok {
		return faultIf(!sameSeries(items, g), OtherValue)
	}
	if w == g || len(w) <= maxAnswer && len(g) <= maxAnswer && markup.Compact(w) == markup.Compact(g) {
		return faultIf(words.IsProse(w) && !slices.Equal(strings.Fields(markup.Bare(w)),
			strings.Fields(markup.Bare(g))), OtherValue)
	}
	if len(w) > maxAnswer || len(g) > maxAnswer {
		return OtherValue
	}
	if letter, ok := words.Choice(w); ok {
		other, ok := words.Choice(g)
		if lower := markup.Bare(g); len(lower) == 1 && lower[0] >= 'a' && !q.Formulas().Names(lower) {
			other, ok = words.Choice(strings.ToUpper(lower))
		}
		if value, both := words.Chosen(g); ok && letter == other && both {
			if option := q.Option(letter); option != "" && !Equal(option, value) {
				return Several
			}
		}
		return faultIf((!ok || letter != other) && !chooses(q, letter, g), OtherValue)
	}
	if letters(w) && q.Asks("letters", "options", "select", "apply", "statements", "choices", "which of") {
		return faultIf(!strings.EqualFold(w, strings.NewReplacer(",", "", " ", "", "and", "", "{", "", "}", "",
			"(", "", ")", "", `\text`, "").Replace(g)), OtherValue)
	}
	if rows, columns, ok := size(w); ok && q.Asks("dimension", "size", "matrix", "order of") {
		m, n, both := size(g)
		return faultIf(!both || rows != m || columns != n, OtherValue)
	}
	if words.StatesNothing(w) && (words.StatesNothing(g) || words.HoldsNothing(g)) {
		return faultIf(words.HoldsNothing(g), OtherValue)
	}
	if same, known := measure.SameTime(w, g); known {
		return faultIf(!same, OtherValue)
	}
	if same, known := measures(q, w, g); known {
		return faultIf(!same, OtherValue)
	}
	if items, ok := series(g); ok && strings.Count(w, ",") == len(items)-1 && len(items) > 2 &&
		!slices.ContainsFunc(items[1:], func(s string) bool { return len(s) == 3 }) {
		g = strings.Join(items, ", ")
	}
	if rest, ok := scaled(q, g); ok && compare(q, w, rest) == "" {
		return ""
	}
	fault := compare(q, w, g)
	if fault == "" || sameWords(q, w, g) {
		return ""
	}
	if rest, ok := words.Chosen(g); ok {
		return compare(q, w, rest)
	}
	return fault
}

// chooses reports whether g is the text of the choice called letter, and of no other.
func chooses(q *question.Question, letter byte, g string) bool {
	option := q.Option(letter)
	if _, ok := words.Choice(g); ok || option == "" {
		return false
	}
	of := q
	if _, ok := words.Choice(option); ok { // "B. B. 12" would ask for the text of B again
		of = &question.Question{}
	}
	if Fault(of, option, g) != "" {
		return false
	}
	for other := byte('A'); other <= 'J'; other++ {
		if text := q.Option(other); other != letter && text != "" && Equal(text, g) {
			return false
		}
	}
	return true
}

// letters reports whether s is several of the capital letters A to J in alphabetical order, such as the
// choices "ACD".
func letters(s string) bool {
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'J' || i > 0 && s[i] <= s[i-1] {
			return false
		}
	}
	return len(s) > 1
}

// size reads the size of a matrix: 2 × 3.
func size(s string) (rows, columns string, ok bool) {
	s = strings.NewReplacer(`\times`, "x", "×", "x", " ", "").Replace(s)
	rows, columns, ok = strings.Cut(s, "x")
	return rows, columns, ok && rows != "" && columns != "" && strings.Trim(rows+columns, "0123456789") == ""
}

// scaled returns a number without the word for its scale if the question asks for it in
// that scale: 26 of "26 billion" for "how many billion".
func scaled(q *question.Question, g string) (string, bool) {
	for _, word := range []string{"thousand", "million", "billion", "trillion", "dozen", "hundred"} {
		head, _, ok := strings.Cut(g, word)
		if ok && (q.Text == "" || q.Asks(word)) {
			return strings.TrimSpace(head), true
		}
	}
	return "", false
}

// isCode reports whether a number is written as in programs: 0x1f, 0b101.
func isCode(s string) bool {
	return len(s) > 2 && s[0] == '0' && strings.IndexByte("xXbBoO", s[1]) >= 0 &&
		strings.Trim(s[2:], "0123456789abcdefABCDEF") == ""
}

// SameValue reports whether each of texts has the value of want, in whatever form. The comparisons share
// one bound on their work; once they exceed it, no text matches.
func SameValue(want string, texts []string) bool {
	c := newComparer(&question.Question{})
	c.loose = true
	want = markup.Clean(want)
	w, okW := read(want, expr.Mode{Thousands: true})
	return !slices.ContainsFunc(texts, func(got string) bool {
		got = markup.Clean(got)
		if got == "" || max(len(want), len(got)) > maxAnswer {
			return true
		}
		if same, known := measures(c.question, want, got); known {
			return !same
		}
		if g, ok := read(got, expr.Mode{Thousands: true}); okW && ok {
			return !c.same(w, g)
		}
		return markup.Compact(want) != markup.Compact(got)
	})
}

// faultIf returns reason if wrong is set, else "".
func faultIf(wrong bool, reason string) string {
	if wrong {
		return reason
	}
	return ""
}

// compare compares w and g as expressions. It reads commas between digits the same way
// on both sides.
func compare(q *question.Question, w, g string) string {
	modes := []expr.Mode{{Thousands: true}}
	if strings.ContainsAny(w+g, ",") || strings.Contains(w+g, " ") {
		modes = append(modes, expr.Mode{})
	}
	fault := OtherValue
	for _, mode := range modes {
		a, okA := read(w, mode)
		b, okB := read(g, mode)
		if !okA || !okB || (a.Kind == expr.Label || a.Kind == expr.Unit) && words.IsProse(w) && !words.HasDigit(w) {
			continue
		}
		if q.Text != "" && isSet(b) && len(b.Args) == 1 && algebra.Literal(a) && !inAnyOrder(q, false) { // {9} for 9
			fault = OtherForm
			continue
		}
		c := newComparer(q)
		c.text = g
		b = unrounded(q, a, b)
		if m := expr.Measured(b); measure.IsUnit(a.Name) && measure.IsUnit(m.Name) { // a unit written as symbols: 5 m
			b = m
		}
		if !c.same(a, b) && !c.same(a, constantOf(q, a, b)) {
			fault = cmp.Or(c.fault, fault)
			continue
		}
		if c.final {
			return ""
		}
		if fault = form(q, a, b, g); fault == "" {
			return ""
		}
	}
	priced := strings.ContainsAny(w+g, "€£$¥")
	w, g = uncurrency(w), uncurrency(g)
	if both := decimalComma(w) && decimalComma(g); both && !priced && !words.HasLetter(w+g) ||
		!both && (decimalComma(w) == decimalComma(g) || !strings.Contains(w+g, ".")) {
		return fault
	}
	a, okA := expr.Parse(w, expr.Mode{Decimal: decimalComma(w)})
	b, okB := expr.Parse(g, expr.Mode{Decimal: decimalComma(g)})
	if okA && okB && newComparer(q).same(a, b) {
		return form(q, a, b, g)
	}
	return fault
}

// read parses s. A number in words parses as that number.
func read(s string, mode expr.Mode) (*expr.Node, bool) {
	n, ok := expr.Parse(s, mode)
	if ok && n.Kind != expr.Text && n.Kind != expr.Label {
		return n, true
	}
	if digits, spelt := words.Spelled(s); spelt {
		return expr.Parse(digits, mode)
	}
	return n, ok
}

// unrounded returns g, with w in place of a number that is w rounded to the decimal places that the
// question asks for.
func unrounded(q *question.Question, w, g *expr.Node) *expr.Node {
	places, ok := q.Places()
	w = unlabelled(w)
	if !ok || places == 0 || w.Kind >= expr.Bracket {
		return g
	}
	switch g.Kind {
	case expr.Number:
		if g.Places == places && algebra.Within(w, g) {
			return w
		}
	case expr.Unit, expr.Label, expr.Relation:
		return g.With(func(arg *expr.Node) *expr.Node { return unrounded(q, w, arg) })
	}
	return g
}

// constantOf returns g, an antiderivative, with its constant of integration named as in w.
func constantOf(q *question.Question, w, g *expr.Node) *expr.Node {
	if !q.Asks("antiderivative", "integral", "integrate", `\int`, "general solution", "differential equation") {
		return g
	}
	constants := func(n *expr.Node) (found []string) {
		n.Has(func(m *expr.Node) bool {
			if m.Kind == expr.Symbol && len(m.Name) == 1 && strings.Contains("CKDABcdk", m.Name) &&
				!q.Formulas().Names(m.Name) && !slices.Contains(found, m.Name) {
				found = append(found, m.Name)
			}
			return false
		})
		return found
	}
	a, b := constants(w), constants(g)
	if len(a) != 1 || len(b) != 1 || a[0] == b[0] {
		return g
	}
	return g.Replaced(func(n *expr.Node) *expr.Node {
		if n.Is(b[0]) {
			return expr.Named(a[0])
		}
		return n
	})
}

// uncurrency returns s without currency signs around it, and with {,} as a plain comma.
func uncurrency(s string) string {
	return strings.Trim(strings.NewReplacer("{,}", ",", `\,`, "", `\$`, "", `\ `, "", "~", "").Replace(s), " €£$¥")
}

// decimalComma reports whether s can only be a number with a decimal comma, perhaps with a unit, or a list
// of two numbers: "1,5", "0,25 kg".
func decimalComma(s string) bool {
	whole, rest, found := strings.Cut(strings.TrimPrefix(s, "-"), ",")
	unit := strings.TrimLeft(rest, "0123456789")
	rest = rest[:len(rest)-len(unit)]
	return found && whole != "" && rest != "" && len(rest) != 3 && strings.Trim(whole, "0123456789") == "" &&
		(unit == "" || !strings.ContainsAny(unit, ",.;=+*01456789") &&
			(words.HasLetter(unit) || strings.HasSuffix(unit, "%")))
}

// comparer compares expressions within a fixed budget of nodes.
type comparer struct {
	question *question.Question
	left     int // nodes still allowed
	algebra  *algebra.Comparer
	fault    string // why values that may be equal do not count as an answer
	loose    bool   // compare values only
	text     string // of the response
	final    bool   // a relation states a value in final form
}

// maxCompared bounds the nodes visited for one pair of answers.
const maxCompared = 1 << 17

func newComparer(q *question.Question) *comparer {
	return &comparer{question: q, left: maxCompared, algebra: algebra.NewComparer(q.Positive)}
}

// match compares a value of the reference answer with one that the response states.
func (c *comparer) match(w, g *expr.Node) bool {
	if !c.same(w, g) {
		return false
	}
	if fault := form(c.question, w, g, c.text); fault != "" && !c.loose {
		return c.because(fault)
	}
	c.final = true
	return true
}

// because records the reason for a difference and returns false.
func (c *comparer) because(fault string) bool {
	c.fault = fault
	return false
}

// same reports whether g, from a response, equals w, the reference answer.
func (c *comparer) same(w, g *expr.Node) bool {
	c.left -= w.Size() + g.Size()
	if c.left < 0 {
		return false
	}
	if w.Kind == expr.Text && (g.Kind == expr.Label || g.Kind == expr.Unit) {
		return false
	}
	if w.Kind == expr.Label || g.Kind == expr.Label {
		return c.labels(w, g)
	}
	if w.Kind == expr.Unit && g.Kind == expr.Relation { // v = 5 m/s
		return c.relation(w, g)
	}
	if w.Kind == expr.Unit || g.Kind == expr.Unit {
		return c.units(w, g)
	}
	if w.Kind == expr.Text || g.Kind == expr.Text {
		pieces, ok := c.sets(w, g)
		return ok && pieces || sameText(w, g)
	}
	w, g = flatten(w), flatten(labelledPoint(g))
	if tuple, ok := assigned(c.question, g); ok && (isCollection(w) || w.Kind == expr.Matrix) {
		if other, both := assigned(c.question, w); both {
			w = other
		}
		g = tuple
	}
	switch {
	case w.Kind == expr.Relation && g.Kind == expr.Relation:
		return c.relations(w, g)
	case w.Kind == expr.Relation || g.Kind == expr.Relation:
		return c.relation(w, g)
	}
	if pieces, ok := c.sets(w, g); ok {
		return pieces
	}
	if isCollection(w) || isCollection(g) {
		return c.collections(w, g)
	}
	switch {
	case w.Kind == expr.Matrix || g.Kind == expr.Matrix:
		return w.Kind == g.Kind && c.rows(w.Args, g.Args)
	case w.Kind == expr.Ratio || g.Kind == expr.Ratio:
		return c.ratios(w, g)
	case w.Kind == expr.Number && g.Kind == expr.Number && (w.Base != "" || g.Base != ""):
		if g.Base != "" && g.Places == 0 && inTen(g) < 0 && len(g.Digits) < 12 {
			return false // 22 in base 2
		}
		if w.Base == "" && c.question.Text != "" && !c.question.Asks("base", "binary", "octal", "hex") {
			return g.Base == "10" && w.Digits == g.Digits
		}
		if w.Base == "" && c.question.Text != "" && !c.question.AsksBase(g.Base) {
			return c.because(OtherForm)
		}
		return w.Digits == g.Digits && w.Places == 0 && g.Places == 0 &&
			(w.Base == g.Base || w.Base == "" || g.Base == "")
	}
	if w.Kind == expr.Number && w.Digits == "" && !w.Value.IsInt() && g.Kind == expr.Number && g.Places > 0 &&
		w.Value.Cmp(g.Value) != 0 {
		return false // 0.142857 is not its repetition
	}
	return c.algebra.Same(w, g)
}

// labelledPoint returns the coordinates of a point with its name: (3, 2) of V(3, 2).
func labelledPoint(n *expr.Node) *expr.Node {
	if n.Kind == expr.Product && len(n.Args) == 2 && isCapital(n.Args[0]) &&
		n.Args[1].Kind == expr.Bracket && n.Args[1].Open == "(" {
		return n.Args[1]
	}
	return n
}

// all compares the two lists pair by pair.
func (c *comparer) all(w, g []*expr.Node) bool { return slices.EqualFunc(w, g, c.same) }

// rows compares matrices cell by cell.
func (c *comparer) rows(w, g []*expr.Node) bool {
	return slices.EqualFunc(w, g, func(a, b *expr.Node) bool { return c.all(a.Args, b.Args) })
}

// labels compares words and what follows them. If only one side has words, they
// introduce the answer, as in "Area: 5".
func (c *comparer) labels(w, g *expr.Node) bool {
	if w.Kind == expr.Label && g.Kind == expr.Label {
		a, b := words.Of(w.Name), words.Of(g.Name)
		return (len(a) == 0 || len(b) == 0 || slices.Equal(a, b)) && c.same(w.Args[0], g.Args[0])
	}
	if w.Kind == expr.Label {
		return len(words.Of(w.Name)) == 0 && c.same(w.Args[0], g) || isTitle(w.Name) && c.same(w.Args[0], g)
	}
	if c.question.ChangedBy(g.Name) {
		return c.because(Altered)
	}
	return c.same(w, g.Args[0])
}

// isTitle reports whether words before a number are likely its name rather than part of
// the answer, as the month in "October 30" is.
func isTitle(name string) bool {
	return name == strings.ToLower(name) || strings.HasSuffix(strings.ToLower(name), "answer")
}

// ratios treats 3:5, 6:10 and 3/5 as equal.
func (c *comparer) ratios(w, g *expr.Node) bool {
	if w.Kind == g.Kind && c.all(w.Args, g.Args) {
		return true
	}
	quotient := func(n *expr.Node) *expr.Node {
		if n.Kind != expr.Ratio {
			return n
		}
		if len(n.Args) != 2 {
			return nil
		}
		return algebra.Quotient(n.Args[0], n.Args[1])
	}
	if g.Kind == expr.Ratio && w.Kind != expr.Ratio && c.question.Text != "" &&
		!c.question.Asks("ratio", "odds", "scale", "proportion", ":") {
		return c.because(OtherForm)
	}
	if w.Kind == expr.Ratio && g.Kind == expr.Ratio && !c.loose &&
		c.algebra.Coprime(w.Args) != c.algebra.Coprime(g.Args) {
		return c.because(Unfinished)
	}
	if w.Kind == expr.Ratio && !c.algebra.Coprime(w.Args) { // 9:24 is a time
		return false
	}
	a, b := quotient(w), quotient(g)
	return a != nil && b != nil && c.algebra.Same(a, b)
}

// sameText reports whether w and g are names or texts of the same words.
func sameText(w, g *expr.Node) bool {
	name := func(n *expr.Node) string {
		if n.Kind == expr.Text || n.Kind == expr.Symbol {
			return n.Name
		}
		return ""
	}
	a, b := words.Of(name(w)), words.Of(name(g))
	return len(a) > 0 && slices.Equal(a, b)
}
