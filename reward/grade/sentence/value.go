package sentence

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Value is a part of a sentence that may be the answer.
type Value struct {
	Span
	Text  string
	Aside bool // after a preposition or in parentheses: about something else
	inner bool // in parentheses
	bold  bool
	Sum   bool // result of arithmetic, as the 5 in "2 + 3 = 5"
	aim   bool // part of an infinitive of purpose, as in "to make 1 robe"
}

// Values returns the numbers and the mathematics of a sentence. Callers must not
// modify the result.
func (s Sentence) Values() []Value {
	if *s.memo == nil {
		f := finder{text: s.Text, found: []Value{}}
		f.run(s.math)
		*s.memo = f.found
	}
	return *s.memo
}

// finder finds the candidates of a sentence.
type finder struct {
	text  string
	depth int // open parentheses
	bold  bool
	found []Value
}

func (f *finder) run(math []Span) {
	for i := 0; i < len(f.text); {
		for len(math) > 0 && math[0].Lo < i {
			math = math[1:]
		}
		here := place{f.text, i}
		if n := here.measure(); n > 0 {
			f.add(here.candidate(n, f.text[i:i+n], here.isResult()))
			i += n
			continue
		}
		if len(math) > 0 && math[0].Lo == i {
			f.formula(here, math[0].Hi)
			i = math[0].Hi
			continue
		}
		if f.mark(here) {
			i++
		}
		limit := len(f.text)
		if len(math) > 0 {
			limit = math[0].Lo
		}
		i += f.plain(place{f.text, i}, limit)
	}
}

func (f *finder) add(c Value) {
	c.inner, c.bold = f.depth > 0, f.bold
	c.Aside = c.Aside || c.inner
	f.found = append(f.found, c)
}

// formula adds the mathematics from here up to hi.
func (f *finder) formula(here place, hi int) {
	text := inner(f.text[here.at:hi])
	if strings.TrimSpace(text) == "" {
		return
	}
	if !strings.Contains(text, "_") {
		text += place{f.text, hi}.base()
	}
	f.add(here.candidate(hi-here.at, text, false))
}

// mark follows parentheses and bold type. It reports whether the mark has two bytes.
func (f *finder) mark(here place) bool {
	switch rest := f.text[here.at:]; {
	case rest[0] == '(' && !here.isGroup():
		f.depth++
	case rest[0] == ')':
		f.depth = max(0, f.depth-1)
	case strings.HasPrefix(rest, "**"):
		f.bold = !f.bold
		return true
	}
	return false
}

// plain adds the expression or number outside LaTeX at here and returns how far to
// advance.
func (f *finder) plain(here place, limit int) int {
	var c Value
	n := expressionAt(f.text[:limit], here.at)
	if n > 0 {
		c = here.equation(n)
	} else if n = min(numberAt(f.text, here.at), limit-here.at); n > 0 {
		c = here.number(n)
	} else {
		return 1
	}
	if k := len(f.found) - 1; k >= 0 && !c.Sum && words.Continues(f.text[f.found[k].Hi:here.at]) {
		c.Aside = c.Aside || f.found[k].Aside
		c.aim = c.aim || !f.found[k].Aside && f.found[k].aim
	}
	f.add(c)
	return n
}

// candidate returns the n bytes from p on as a candidate that means text.
func (p place) candidate(n int, text string, sum bool) Value {
	return Value{Span: Span{p.at, p.at + n}, Text: text, Aside: p.isAside(), aim: p.isAim(), Sum: sum}
}

// equation returns the expression of n bytes at p, or the value that it computes.
func (p place) equation(n int) Value {
	run := strings.TrimRight(p.after(n), ".,:;*=+-/ ")
	lo, sum := 0, false
	if at := strings.LastIndexByte(run, '='); at >= 0 && !isRelation(run, at) {
		sum = strings.IndexFunc(strings.ReplaceAll(run[:at], " x ", ""), unicode.IsLetter) < 0
		lo = at + 1
		if name := strings.TrimSpace(run[at+1:]); len(name) == 1 && expr.LetterAt(name, 0) && sum { // 20 = A
			run = strings.TrimRight(run[:at], " ")
			lo = strings.LastIndexByte(run, '=') + 1
		}
	}
	text := strings.TrimSpace(run[lo:])
	if left := strings.TrimSpace(run[:max(0, lo-1)]); lo > 0 && strings.ContainsAny(left, "/^√²³") && hasVariable(left) && !strings.ContainsAny(left, "=") {
		text = run // 1/x = 4
	}
	if left := strings.TrimSpace(run[:max(0, lo-1)]); lo > 0 && hasCoefficient(left) && p.isStated() {
		text = run // 3n = 12
	}
	if lo > 0 && strings.Trim(run[:lo-1], "$0123456789., ") == "" && strings.ContainsAny(text, "+*/^×·") { // 9,901 = 99^2 + 100
		text = run
	}
	if measure := strings.TrimRight(text, "²³"); measure != text && isMeasure(measure) {
		text = measure
	}
	if n := len(text); n > 1 && expr.DigitAt(text, n-2) && strings.Trim(text[:n-1], "-$0123456789.,") == "" && strings.IndexByte("mgshlL", text[n-1]) >= 0 {
		text = text[:n-1] // a unit
	}
	c := p.candidate(len(run), text+place{p.text, p.at + len(run)}.magnitude(), sum)
	c.Lo += lo
	return c
}

// hasVariable reports whether a letter in s stands alone, as the x of 1/x and not the g of
// 5g and the x of 2 x 3.
func hasVariable(s string) bool {
	for i := range len(s) {
		if expr.LetterAt(s, i) && !expr.LetterAt(s, i-1) && !expr.LetterAt(s, i+1) && !expr.DigitAt(s, i-1) && !strings.HasPrefix(s[max(0, i-1):], " x ") {
			return true
		}
	}
	return false
}

// isStated reports whether p begins a sentence or follows a colon or "is".
func (p place) isStated() bool {
	before := strings.TrimRight(p.before(8), " $*")
	return before == "" || words.Ends(before, ":", " is", " that")
}

// hasCoefficient reports whether s is a number and a letter, as in 3n, that is not a unit.
func hasCoefficient(s string) bool {
	letter := strings.TrimLeft(s, "-0123456789.")
	return letter != s && len(letter) == 1 && expr.LetterAt(letter, 0) && strings.IndexByte("mgshlLkK", letter[0]) < 0
}

// number returns the number of n bytes at p.
func (p place) number(n int) Value {
	text := strings.TrimRight(p.after(n), ".,:*-+/_")
	size := len(text)
	if size > 1 && (text[size-1]|0x20 == 'k' || text[size-1] == 'M' && text[0] == '$') && strings.Trim(text[:size-1], "-$0123456789.,") == "" {
		text = strings.TrimPrefix(text[:size-1], "$") + map[bool]string{true: " thousand", false: " million"}[text[size-1]|0x20 == 'k']
	}
	c := p.candidate(size, text+place{p.text, p.at + size}.magnitude(), p.isResult())
	c.Aside = c.Aside || p.isMark(p.at+n)
	return c
}

// isMeasure reports whether text is a number and a unit of length without a space, as
// in 5m.
func isMeasure(text string) bool {
	number := strings.TrimRight(text, "cmk")
	return number != text && strings.HasSuffix(text, "m") && strings.Trim(number, "-$0123456789.,") == ""
}

// isRelation reports whether run, with its last = at at, is a relation rather than a
// value for its right side: an inequality, or an equation such as 2x - y + 3 = 0.
func isRelation(run string, at int) bool {
	if strings.ContainsAny(run, "<>≤≥≠") {
		return true
	}
	left := strings.TrimSpace(run[:at])
	right := strings.TrimSpace(run[at+1:])
	named := strings.IndexFunc(strings.TrimRight(right, "mgshlL"), unicode.IsLetter) >= 0 // rather than measured
	curve := strings.ContainsAny(left, "²³^")                                             // x² + y² = 25
	return (right == "0" || named || curve) && strings.ContainsAny(left, "+-−") && strings.IndexFunc(left, unicode.IsLetter) >= 0
}
