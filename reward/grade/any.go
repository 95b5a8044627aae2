package grade

import (
	"regexp"
	"slices"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// FaultAny is Fault for models that mark no answer: without a whole mark, the last number of the
// response after its reasoning counts. A model that is trained on it learns to end in numbers.
func (t *Task) FaultAny(response string) string {
	fault := t.Fault(response)
	if number, ok := t.numeral(response, fault); ok {
		return answer.Fault(t.question, t.gold, number)
	}
	return fault
}

// AnsweredAny is Answered for FaultAny.
func AnsweredAny(response string) string {
	t := Task{}
	if number, ok := t.numeral(response, t.missing(response)); ok {
		return answer.Canonical(number)
	}
	return Answered(response)
}

// missing returns why a response has no whole mark, or "".
func (t *Task) missing(response string) string {
	text, ok := final(response)
	m := find(text)
	switch {
	case !ok:
		return EndlessText
	case !m.ok:
		return Unmarked
	case m.cut:
		return CutOff
	}
	return ""
}

// numeral returns the last number of a response whose fault is that it has no whole mark.
func (t *Task) numeral(response, fault string) (string, bool) {
	if !slices.Contains([]string{Unmarked, CutOff}, fault) {
		return "", false
	}
	text := Final(response)
	text = text[max(0, len(text)-maxTail):]
	found := number().FindAllStringIndex(text, -1)
	if len(found) == 0 {
		return "", false
	}
	lo, hi := found[len(found)-1][0], found[len(found)-1][1]
	if text[lo] == '-' && (expr.DigitAt(text, lo-1) || expr.LetterAt(text, lo-1)) { // a hyphen
		lo++
	}
	return text[lo:hi], true
}

// number returns the pattern of a number in a text: -1,234.5, 3/4 or 50%.
func number() *regexp.Regexp {
	return regexp.MustCompile(`-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?%?`)
}
