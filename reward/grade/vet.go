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
	gold := strings.ToLower(t.gold)
	lo, hi := 0, 0 // the clause that holds the value
	if c.marked && hasDigit(t.gold) {
		lo, hi = clauseOf(c.text, t.gold)
	}
	if at := valueAt(c.text, t.gold); at >= 0 && answer.OtherQuantity(t.question, c.lead+" "+c.text[:at]) {
		return answer.Altered
	}
	for i, part := range []string{c.text[lo:hi], c.text[:lo], c.text[hi:]} {
		for _, word := range strings.FieldsFunc(strings.ToLower(withoutCommands(emphasis().Replace(part))), notInWord) {
			switch {
			case len(word) < 3 || t.question.Has(word) || word == "per" && t.question.AsksRate() || strings.Contains(gold, word):
			case words.Doubts(word):
				return answer.Altered
			case i == 0 && !words.Neutral(word) && !words.Counts(word) && !measure.IsUnit(word):
				return "strange " + word
			}
		}
	}
	if !strings.ContainsAny(gold, "/0123456789") && joinsWords(c.text) {
		return answer.Several
	}
	if lead := strings.TrimSuffix(strings.TrimRight(strings.ToLower(c.lead), " $*"), " the"); strings.HasSuffix(lead, " of") && words.Before(lead) != "" {
		return answer.Altered // the square of the answer
	}
	if end := strings.TrimRight(c.text, " .!*"); words.Ends(end, "is not", "are not", "isn't") {
		return answer.Altered
	}
	if strings.Contains(c.text, "''") && !words.Contains(t.question.Text, "''", "econd") && !strings.Contains(t.gold, "''") {
		return answer.Altered // f''(x)
	}
	if words.Negates(strings.ToLower(c.lead)) || strings.Contains(c.lead, " false that ") {
		return answer.Altered
	}
	if strings.Contains(c.text, "'(") && !strings.ContainsAny(t.question.Text+t.gold, "'") && !t.question.AsksSlope() && hasDigit(t.gold) {
		return answer.Altered // f'(2)
	}
	if congruent(c.text) && !congruent(t.gold) && !congruent(t.question.Text) && !strings.Contains(t.question.Text, "remainder") {
		return answer.Unfinished
	}
	if strings.Contains(c.text[lo:max(hi, lo)], " per ") && !t.question.AsksRate() {
		return answer.OtherUnit
	}
	if !c.marked || answer.IsBlock(t.gold) {
		return ""
	}
	for _, sign := range []string{`\to`, `\rightarrow`, "→", "->"} {
		if strings.Contains(c.text, sign) && !strings.Contains(c.text, sign+"p") && !strings.Contains(t.gold, sign) && !strings.Contains(c.text, "lim") {
			return answer.Altered
		}
	}
	if otherCurrency(c.text, t.question.Text) || strings.Contains(t.question.Text, "Celsius") && inFahrenheit(c.text) && strings.LastIndex(t.question.Text, "Celsius") > strings.LastIndex(t.question.Text, "Fahrenheit") {
		return answer.OtherUnit
	}
	if strings.IndexByte("<>", (strings.TrimLeft(c.text, " $*") + " ")[0]) >= 0 && !strings.ContainsAny(t.gold, "<>\\") {
		return answer.Altered
	}
	if rest := strings.TrimLeft(c.text, " $*"); words.Begins(rest, `\div`, `\times`, "÷", "×", "/") {
		return answer.Unfinished
	}
	if strings.ContainsAny(c.text, "∨?") && !strings.ContainsAny(t.gold, "∨?") || strings.Count(c.text, "≈")+strings.Count(c.text, `\approx`) > 1 {
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

func notInWord(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != '’' }

// valueAt returns the offset of the first value in s that equals gold, or -1.
func valueAt(s, gold string) int {
	for _, part := range sentence.Split(s) {
		for _, c := range part.Values() {
			if answer.SameValue(gold, c.Text) {
				return part.Lo + c.Lo
			}
		}
	}
	return -1
}

// clauseOf returns the bounds of the clause of s that holds the first value equal to gold,
// or of all of s.
func clauseOf(s, gold string) (lo, hi int) {
	at, end := -1, 0
	for _, part := range sentence.Split(s) {
		for _, c := range part.Values() {
			if at < 0 && answer.SameValue(gold, c.Text) {
				at, end = part.Lo+c.Lo, part.Lo+c.Hi
			}
		}
	}
	if at < 0 {
		return 0, len(s)
	}
	for _, sep := range []string{",", ";", ":", " ("} {
		if i := strings.LastIndex(s[:at], sep); i >= 0 {
			lo = max(lo, i+len(sep))
		}
	}
	hi = len(s)
	for _, sep := range []string{",", ";", ")", " (", ". "} {
		if n := strings.Index(s[end:hi], sep); n >= 0 {
			hi = end + n
		}
	}
	return lo, hi
}

// emphasis removes double negations.
func emphasis() *strings.Replacer {
	return strings.NewReplacer("nothing other than ", "", "none other than ", "", "no other than ", "", "nothing but ", "", "no more and no less than ", "")
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
