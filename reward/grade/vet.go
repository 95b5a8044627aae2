package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// vet returns why a claim that has the right value is no answer all the same, or "": its
// words doubt, deny or change the value; a mark holds words that neither the question nor a
// plain answer uses, or other values.
func (t *Task) vet(c claim) string {
	if t.question.Text == "" {
		return ""
	}
	at, end := locate(c.text, t.gold, c.marked)
	value, after := "", "" // the value in the text, and what follows it
	if at >= 0 {
		value, after = c.text[at:end], c.text[end:]
		if answer.OtherQuantity(t.question, c.lead+" "+c.text[:at]) {
			return answer.Altered
		}
		if fault := (surroundings{t, strings.ToLower(c.lead + " " + c.text[:at]), strings.ToLower(value), strings.ToLower(after)}).fault(); fault != "" {
			return fault
		}
	}
	if at > 1 && !c.marked && c.text[at-2:at] == " {" && strings.HasPrefix(after, "}") && !strings.ContainsAny(t.gold, "{}") {
		return answer.Altered
	}
	lo, hi := 0, 0 // the clause of a mark that holds the value
	if c.marked && words.HasDigit(t.gold) {
		lo, hi = clause(c.text, at, end)
	}
	if fault := t.vetWords(c.text, lo, hi); fault != "" {
		return fault
	}
	switch {
	case c.isDenied(), t.otherDerivative(c.text), computesOn(after), words.Contains(c.text, "would be the answer", " only if "), t.shareOf(after), words.Contains(after, "in decimal", "in base ten", "in base 10") && t.question.Asks("in octal", "to octal", "in binary", "to binary", "in hex", "to hex"), t.otherModulus(c.text):
		return answer.Altered
	case words.Contains(c.text, "... sorry", "... hmm", "...sorry", "or else"), hasBothHalves(c.text), undecidedIn(after), strings.Contains(t.gold, ",") && words.Contains(c.text, ", ...", ", …", `, \ldots`, `,\ldots`, `, \dots`) && !words.Contains(t.gold, "..", "…", "dots"), !strings.ContainsAny(t.gold, "/0123456789") && joinsWords(c.text),
		c.marked && words.HasDigit(t.gold) && strings.Contains(c.text, "one of ") && !strings.Contains(c.text, "one of the"):
		return answer.Several
	case t.otherUnit(value, after), t.rated(after), t.otherDegree(c.text), strings.Contains(c.text, "‰") && !strings.Contains(t.gold, "‰"),
		strings.Contains(c.text[lo:hi], " per ") && !t.question.AsksRate():
		return answer.OtherUnit
	case misgrouped(c.text), words.Contains(c.text, `}{}`, `{}^`, `\frac{}`, `\sqrt{}`), c.marked && breaksOff(c.text):
		return answer.NoAnswer
	case congruent(c.text) && !congruent(t.gold) && !congruent(t.question.Text) && !strings.Contains(t.question.Text, "remainder"):
		return answer.Unfinished
	case c.marked:
		return t.vetSigns(c.text)
	}
	return ""
}

// vetWords returns why the words of a claim change its value, or "". Its clause text[lo:hi]
// holds no words but those of the question and of plain answers.
func (t *Task) vetWords(text string, lo, hi int) string {
	gold := strings.ToLower(t.gold)
	for i, part := range []string{text[lo:hi], text[:lo], text[hi:]} {
		part = strings.ToLower(withoutCommands(words.WithoutEmphasis(part)))
		for _, word := range strings.FieldsFunc(part, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '’' }) {
			switch {
			case len(word) < 3 || t.question.Has(word) || word == "per" && t.question.AsksRate() || strings.Contains(gold, word):
			case words.Doubts(word) && (word != "claim" || words.HasDigit(gold)):
				return answer.Altered
			case i == 0 && !words.Neutral(word) && !words.Counts(word) && !measure.IsUnit(word):
				return answer.Strange
			}
		}
	}
	return ""
}

// isDenied reports whether the words around a claim deny it or compute with it: "It is false
// that the answer is 5", "the square of the answer is 5", "5 is not".
func (c claim) isDenied() bool {
	lead := strings.ToLower(c.lead)
	if words.HasNegation(lead[strings.LastIndexAny(lead, ",;:")+1:]) && !strings.Contains(lead, " but ") || words.Contains(lead+" "+strings.ToLower(c.text), " false that ") || words.Ends(strings.TrimRight(c.text, " .!*"), "is not", "are not", "isn't") {
		return true
	}
	of := strings.TrimSuffix(strings.TrimRight(lead, " $*"), " the")
	return strings.HasSuffix(of, " of") && words.Before(of) != ""
}

// otherDerivative reports whether text writes a first or a second derivative that neither the
// question nor the reference answer has.
func (t *Task) otherDerivative(text string) bool {
	known := t.question.Text + t.gold
	if asked, _, _ := strings.Cut(t.question.Last(), " if "); words.Contains(asked, "f'(x)", "g'(x)", "y'") && !strings.Contains(text, "'") && words.Contains(strings.ReplaceAll(text, " ", ""), "f(x)=", "g(x)=") && !strings.Contains(t.gold, "(x)") {
		return true
	}
	return strings.Contains(text, "''") && !strings.Contains(known, "''") && !strings.Contains(t.question.Text, "econd") ||
		strings.Contains(text, "'(") && !strings.Contains(known, "'") && !t.question.AsksSlope() && words.HasDigit(t.gold)
}

// vetSigns returns why the signs inside a mark make it no answer, or "".
func (t *Task) vetSigns(text string) string {
	for _, arrow := range []string{`\to`, `\rightarrow`, "→", "->"} {
		if strings.Contains(text, arrow) && !words.Contains(text, arrow+"p", "lim") && !strings.Contains(t.gold, arrow) {
			return answer.Altered
		}
	}
	start := strings.TrimLeft(text, " $*")
	switch asked := t.question.Text; {
	case otherCurrency(text, asked):
		return answer.OtherUnit
	case words.Begins(start, "<", ">") && !strings.ContainsAny(t.gold, "<>\\"):
		return answer.Altered
	case words.Begins(start, `\div`, `\times`, "÷", "×", "/"):
		return answer.Unfinished
	case strings.ContainsAny(text, "∨?") && !strings.ContainsAny(t.gold, "∨?"), strings.Count(text, "≈")+strings.Count(text, `\approx`) > 1:
		return answer.Several
	}
	return ""
}

// withoutCommands returns s without the names of LaTeX commands and environments.
func withoutCommands(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || !expr.LetterAt(s, i+1) {
			b.WriteByte(s[i])
			continue
		}
		end := i + 1
		for expr.LetterAt(s, end) {
			end++
		}
		if name := s[i+1 : end]; (name == "begin" || name == "end") && strings.HasPrefix(s[end:], "{") {
			if n := strings.IndexByte(s[end:], '}'); n > 0 {
				end += n + 1
			}
		}
		b.WriteByte(' ')
		i = end - 1
	}
	return b.String()
}

// locate returns the bounds of the first or last value in s that equals gold, or -1.
func locate(s, gold string, first bool) (lo, hi int) {
	lo, hi = -1, -1
	if len(gold) > maxMark {
		return lo, hi
	}
	want := answer.NewValue(gold)
	for _, part := range sentence.Split(s) {
		for _, c := range part.Values() {
			if (lo < 0 || !first) && want.Same(c.Text) {
				lo, hi = part.Lo+c.Lo, part.Lo+c.Hi
			}
		}
	}
	return lo, hi
}

// clause returns the bounds of the clause of s that holds the value s[at:end], or of all of s
// if there is none.
func clause(s string, at, end int) (lo, hi int) {
	hi = len(s)
	if at < 0 {
		return 0, hi
	}
	for _, sep := range []string{",", ";", ":", " ("} {
		if i := strings.LastIndex(s[:at], sep); i >= 0 {
			lo = max(lo, i+len(sep))
		}
	}
	for _, sep := range []string{",", ";", ")", " (", ". "} {
		if n := strings.Index(s[end:hi], sep); n >= 0 {
			hi = end + n
		}
	}
	return lo, hi
}

// undecidedIn reports whether a text leaves open which of its values is the answer.
func undecidedIn(text string) bool {
	return words.Contains(strings.ToLower(text), "one of these", "one of those", "one of them", " in between", "some would say", "some say", "or else", "failing that", "whichever")
}

// misgrouped reports whether thin spaces group the digits of a number other than by three.
func misgrouped(text string) bool {
	_, rest, ok := strings.Cut(text, `\,`)
	for ; ok; _, rest, ok = strings.Cut(rest, `\,`) {
		n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if n > 0 && n != 3 && strings.HasPrefix(rest[n:], `\,`) && n+2 < len(rest) && expr.DigitAt(rest, n+2) {
			return true
		}
	}
	return false
}

// joinsWords reports whether a slash stands between two words: "knight/knave".
func joinsWords(s string) bool {
	for i := range s {
		if s[i] == '/' && expr.LetterAt(s, i-1) && expr.LetterAt(s, i+1) {
			return true
		}
	}
	return false
}

// otherCurrency reports whether an answer has the sign of a currency that the question,
// which has another one, does not use.
func otherCurrency(text, question string) bool {
	const signs = "$€£¥₹"
	for _, sign := range "€£¥₹" {
		if strings.ContainsRune(text, sign) && !strings.ContainsRune(question, sign) {
			return strings.ContainsAny(question, signs) || strings.Contains(question, "dollar")
		}
	}
	return false
}

// otherDegree reports whether a temperature is on a scale that the question does not mention,
// or mentions before the other one.
func (t *Task) otherDegree(text string) bool {
	scale := func(s string) (celsius, fahrenheit int) {
		s = strings.NewReplacer(`\text`, "", `\mathrm`, "", "{", "", "}", "", "$", "", " ", "", `\ `, "", `^\circ`, "°", `\circ`, "°").Replace(s)
		return max(strings.LastIndex(s, "°C"), strings.LastIndex(s, "Celsius")), max(strings.LastIndex(s, "°F"), strings.LastIndex(s, "Fahrenheit"))
	}
	if !words.Contains(text, "C", "F") {
		return false
	}
	c, f := scale(text)
	askedC, askedF := scale(t.question.Text)
	if t.question.LastHas("kelvin") {
		return max(c, f) >= 0
	}
	if t.question.LastHas("in °c", "in degrees c", "in celsius", "to celsius", "to °c") {
		return f >= 0 && c < 0
	}
	return c >= 0 && f < 0 && askedF > askedC || f >= 0 && c < 0 && askedC > askedF
}

// computesOn reports whether an operator and more follow a value: "12 + one year".
func computesOn(after string) bool {
	after = strings.TrimLeft(after, " $*)")
	rest := strings.TrimLeft(after, "+×÷")
	return rest != after && strings.ContainsFunc(rest, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// shareOf reports whether a percentage is a share of the old value where the question asks for
// the change.
func (t *Task) shareOf(after string) bool {
	after = strings.TrimLeft(after, " $*\\%")
	return words.Begins(after, "of the old", "of the original", "of its old", "of its original", "of the previous", "of the initial", "of the former", "of the new") &&
		t.question.LastHas("by what percent", "by how many percent", "percent increase", "percent decrease", "percentage increase", "percentage decrease", "percent change")
}

// otherUnit reports whether a unit that the value's reading leaves out follows it and is not
// the one asked for: "24 cm²" for a volume.
func (t *Task) otherUnit(value, after string) bool {
	after = strings.TrimLeft(after, " $*~")
	end := 0
	for end < len(after) && (expr.LetterAt(after, end) || after[end] == '/') {
		end++
	}
	for _, power := range []string{"²", "³", "^2", "^3", "^{2}", "^{3}"} {
		if strings.HasPrefix(after[end:], power) {
			end += len(power)
			break
		}
	}
	if end == 0 {
		return false
	}
	unit := strings.NewReplacer("²", "^2", "³", "^3", "^{2}", "^2", "^{3}", "^3").Replace(after[:end])
	return unit != "in" && measure.Kind(unit) != "" && !strings.HasSuffix(value, unit) && t.FaultOf(value+" "+unit) == answer.OtherUnit
}

// rated reports whether a rate follows a value although the question asks for none: "105 pages
// a day".
func (t *Task) rated(after string) bool {
	fields := strings.Fields(strings.ToLower(after[:min(len(after), 60)]))
	for i, f := range fields[:min(len(fields), 3)] {
		if strings.ContainsAny(f, ".,;:(") {
			return false
		}
		if i+1 < len(fields) && words.OneOf(f, "a", "an", "each", "every") && i > 0 && words.OneOf(strings.Trim(fields[i+1], ".,*"), "day", "week", "month", "year", "hour", "minute", "second") {
			return !t.question.AsksRate() && !t.question.Asks("in "+f+" ", strings.Trim(fields[i+1], ".,*"))
		}
	}
	return false
}

// otherModulus reports whether an answer is modulo a number that the question, which is about
// numbers modulo another, does not have.
func (t *Task) otherModulus(text string) bool {
	if !congruent(text) || !congruent(t.question.Text) {
		return false
	}
	_, after, _ := strings.Cut(text, "mod")
	digits := strings.TrimLeft(after, "ulo {}")
	digits = digits[:len(digits)-len(strings.TrimLeft(digits, "0123456789"))]
	return !strings.Contains(t.question.Text, digits)
}

// hasBothHalves reports whether a time leaves open which half of the day it means: "2
// a.m./p.m.".
func hasBothHalves(s string) bool {
	if !words.Contains(s, "m", "M") || !words.Contains(s, "/", " or ") {
		return false
	}
	s = strings.NewReplacer(".", "", " ", "").Replace(strings.ToLower(s))
	return words.Contains(s, "am/pm", "pm/am", "amorpm", "pmoram")
}

// congruent reports whether s speaks of numbers modulo another.
func congruent(s string) bool {
	return words.Contains(s, "(mod", `\pmod`, " mod", "≡", `\equiv`, "congruent")
}
