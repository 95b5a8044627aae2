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
	at, end := locate(c.text, t.gold)
	lo, hi := 0, 0 // the clause of a mark that holds the value
	if c.marked && words.HasDigit(t.gold) {
		lo, hi = clause(c.text, at, end)
	}
	if at >= 0 && answer.OtherQuantity(t.question, c.lead+" "+c.text[:at]) {
		return answer.Altered
	}
	if fault := t.vetWords(c.text, lo, hi); fault != "" {
		return fault
	}
	switch {
	case !strings.ContainsAny(t.gold, "/0123456789") && joinsWords(c.text):
		return answer.Several
	case c.isDenied(), t.otherDerivative(c.text):
		return answer.Altered
	case congruent(c.text) && !congruent(t.gold) && !congruent(t.question.Text) && !strings.Contains(t.question.Text, "remainder"):
		return answer.Unfinished
	case strings.Contains(c.text[lo:hi], " per ") && !t.question.AsksRate():
		return answer.OtherUnit
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
			case words.Doubts(word):
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
	if words.Negates(lead) || strings.Contains(lead, " false that ") || words.Ends(strings.TrimRight(c.text, " .!*"), "is not", "are not", "isn't") {
		return true
	}
	of := strings.TrimSuffix(strings.TrimRight(lead, " $*"), " the")
	return strings.HasSuffix(of, " of") && words.Before(of) != ""
}

// otherDerivative reports whether text writes a derivative, such as f'(2) or f”(x), that
// neither the question nor the reference answer has.
func (t *Task) otherDerivative(text string) bool {
	known := t.question.Text + t.gold
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
	case otherCurrency(text, asked), inFahrenheit(text) && strings.LastIndex(asked, "Celsius") > strings.LastIndex(asked, "Fahrenheit"):
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

// locate returns the bounds of the first value in s that equals gold, or -1.
func locate(s, gold string) (lo, hi int) {
	for _, part := range sentence.Split(s) {
		for _, c := range part.Values() {
			if answer.SameValue(gold, c.Text) {
				return part.Lo + c.Lo, part.Lo + c.Hi
			}
		}
	}
	return -1, -1
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

// inFahrenheit reports whether an answer is a temperature in degrees Fahrenheit.
func inFahrenheit(text string) bool {
	text = strings.NewReplacer(`\text`, "", `\mathrm`, "", "{", "", "}", "", "$", "", " ", "", `^\circ`, "°").Replace(text)
	return words.Contains(text, "°F", "Fahrenheit")
}

// congruent reports whether s speaks of numbers modulo another.
func congruent(s string) bool {
	return words.Contains(s, "(mod", `\pmod`, " mod", "≡", `\equiv`, "congruent")
}
