package question

import (
	"cmp"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/algebra"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// The bounds on the formulas that are read: the bytes from the end of the question, the number of formulas,
// and the bytes of one.
const (
	maxText     = 1 << 13
	maxFormulas = 64
	maxFormula  = 4096
)

// Formulas is what the formulas of a question hold. The keys are those of package algebra.
type Formulas struct {
	Keys    map[string]bool // of all formulas and their parts, except numbers
	Alone   map[string]bool // keys of the formulas that are not equations
	Symbols map[string]bool // keys of the symbols
	Given   map[string]bool // numbers as written, in compact form
}

// Formulas returns what the formulas of the question hold. It reads them once.
func (q *Question) Formulas() *Formulas {
	if q.formulas != nil {
		return q.formulas
	}
	q.formulas = &Formulas{Keys: map[string]bool{}, Alone: map[string]bool{}, Symbols: map[string]bool{},
		Given: map[string]bool{}}
	text := q.Text[max(0, len(q.Text)-maxText):]
	found := markup.Spans(text)
	for _, span := range found[:min(len(found), maxFormulas)] {
		formula := markup.Clean(text[span.Lo:span.Hi])
		if len(formula) > maxFormula {
			continue
		}
		for _, part := range append([]string{formula}, strings.Split(formula, ",")...) {
			if n, ok := expr.Parse(part, expr.Mode{Thousands: true}); ok {
				q.formulas.add(n, part)
			}
		}
	}
	return q.formulas
}

// add adds n, the expression that text writes.
func (f *Formulas) add(n *expr.Node, text string) {
	if algebra.Literal(n) {
		f.Given[markup.Compact(text)] = true
		return
	}
	if n.Kind != expr.Relation {
		f.Alone[algebra.Key(n)] = true
	}
	n.Has(func(m *expr.Node) bool {
		if m.Kind == expr.Symbol {
			f.Symbols[algebra.Key(m)] = true
		}
		if len(m.Args) > 0 && m.Kind != expr.Unit && !algebra.Literal(m) {
			f.Keys[algebra.Key(m)] = true
		}
		return false
	})
}

// Names reports whether a formula of the question has the symbol.
func (f *Formulas) Names(symbol string) bool {
	return f.Symbols[symbol] || f.Symbols[algebra.Key(expr.Named(symbol))]
}

// Target returns the key of the quantity that the question asks for by name: the last
// after "find", "what is" and the like, or "".
func (q *Question) Target() string {
	if n := q.TargetName(); n != nil {
		return algebra.Key(n)
	}
	return ""
}

// TargetName returns the quantity of Target, or nil.
func (q *Question) TargetName() *expr.Node {
	if !q.aimed {
		q.target, q.aimed = target(q.Text, q.lower), true
		if symbols := q.Formulas().Symbols; q.target == nil && len(symbols) == 1 && q.LastHas("solve") {
			for key := range symbols { // the only unknown
				q.target = expr.Named(strings.TrimPrefix(key, algebra.Key(expr.Named(""))))
			}
		}
	}
	return q.target
}

// target returns the quantity that a question asks for by name, or nil.
func target(text, lower string) (best *expr.Node) {
	at := -1
	for _, phrase := range []string{"find $", "what is $", "value of $", "compute $", "determine $", "evaluate $",
		"calculate $", "solve for $", "find \\(", "what is \\(", "value of \\("} {
		i := strings.LastIndex(lower, phrase)
		if i <= at {
			continue
		}
		inside := text[min(len(text), i+len(phrase)):]
		if len(text) != len(lower) {
			continue
		}
		if end := strings.IndexAny(inside, "$"); end > 0 && !strings.HasSuffix(phrase, "(") {
			inside = inside[:end]
		} else if end := strings.Index(inside, `\)`); end > 0 {
			inside = inside[:end]
		}
		if n, ok := expr.Parse(markup.Clean(inside), expr.Mode{}); ok && n.Kind != expr.Relation &&
			n.Kind != expr.List {
			best, at = n, i
		}
	}
	if name := cmp.Or(lastName(text), plainName(lower)); best == nil && name != "" {
		return expr.Named(name)
	}
	return best
}

// lastName returns the letter between dollar signs that ends the question, or "". The last sentence must
// begin with "Find" or the like: "Find the hypotenuse $c$."
func lastName(text string) string {
	text = strings.TrimRight(text, " .?\n")
	head, ok := strings.CutSuffix(text, "$")
	at := strings.LastIndexByte(head, '$')
	if !ok || at < 0 || len(head)-at != 2 || !expr.LetterAt(head, at+1) {
		return ""
	}
	last := head[strings.LastIndexAny(head[:at], ".\n")+1 : at]
	if first := strings.ToLower(words.First(last)); first != "find" && first != "determine" && first != "calculate" &&
		first != "compute" {
		return ""
	}
	return head[at+1:]
}

// plainName returns the letter that a question in lower case asks for without LaTeX: "find
// x", or "".
func plainName(lower string) string {
	name := ""
	for _, phrase := range []string{"find ", "what is ", "value of ", "solve for "} {
		_, rest, ok := strings.Cut(lower, phrase)
		if ok && expr.LetterAt(rest, 0) && rest[0] != 'a' && !expr.LetterAt(rest, 1) &&
			!strings.HasPrefix(rest[1:], "'") && !strings.HasPrefix(rest[1:], "(") {
			name = rest[:1]
		}
	}
	return name
}

// Denotes reports whether a letter conventionally denotes another quantity than the one that
// the last sentence asks for: b, an intercept, for a slope, or r for a diameter.
func (q *Question) Denotes(letter string) bool {
	asked, count, other := q.wanted(), 0, false
	if words.Contains(asked, "slope", "gradient") && words.OneOf(letter, "x", "y") && q.Formulas().Names(letter) &&
		!q.LastHas("$"+letter+"$") {
		return true
	}
	for _, row := range [][2]string{{"slope", "mka"}, {"intercept", "bc"}, {"radius", "rR"}, {"diameter", "dD"},
		{"area", "ASK"}, {"perimeter", "Pp"}, {"circumference", "C"}, {"volume", "V"},
		{"side", "sax"}, {"speed", "vsr"}, {"time", "t"}, {"distance", "d"}, {"principal", "P"}, {"interest", "I"},
		{"length", "lLdsD"}, {"width", "wW"}, {"height", "hH"}} {
		means := strings.Contains(row[1], letter)
		switch {
		case !strings.Contains(asked, row[0]):
			other = other || means
		case means:
			return false
		default:
			count++
		}
	}
	return count == 1 && other && len(letter) == 1 && !q.LastHas(" "+letter+" ", "$"+letter+"$", " "+letter+"?",
		" "+letter+".")
}

// Ordered returns names in the order in which the question lists them between parentheses, as in
// "(y, x)", or else in alphabetical order.
func (q *Question) Ordered(names []string) []string {
	names = slices.Sorted(slices.Values(names))
	for _, rest := range strings.Split(markup.Compact(q.Text), "(")[1:] {
		inside, _, _ := strings.Cut(rest[:min(len(rest), maxTuple)], ")")
		if listed := strings.Split(inside, ","); len(listed) == len(names) &&
			slices.Equal(slices.Sorted(slices.Values(listed)), names) {
			return listed
		}
	}
	return names
}

// maxTuple bounds a list of names between parentheses, in bytes.
const maxTuple = 60
