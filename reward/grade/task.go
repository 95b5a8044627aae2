package grade

import (
	"regexp"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/question"
)

// NoAnswer is the fault of a mark that holds no answer.
const NoAnswer = answer.NoAnswer

// The faults of a response that gives no answer.
const (
	Unmarked    = "no answer is marked"
	CutOff      = "the last mark is cut off"
	BrokenOff   = "the marked text is no whole answer"
	EndlessText = "the reasoning does not end"
)

// Task is a question and its reference answer. It is not safe for concurrent use.
type Task struct {
	gold     string
	question *question.Question
}

// NewTask returns a task. text is the question and may be empty. want is a bare answer, or a
// solution with its answer marked.
func NewTask(text, want string) *Task {
	return &Task{gold: norm.NFC.String(Bare(want)), question: question.New(text[max(0, len(text)-maxTail):])}
}

// Bare returns the answer that a data set's field states: the last mark in it, or the field
// itself.
func Bare(want string) string {
	if _, after, ok := strings.Cut(want, "####"); ok {
		return strings.TrimSpace(after)
	}
	if answer.IsBlock(want) {
		return want
	}
	if list, _, ok := markup.Boxed(want); ok {
		return list
	}
	if m := find(want); len(want) > maxStated && m.ok && !m.cut {
		return m.text
	}
	return want
}

// maxStated is the length in bytes up to which a field without a box is an answer, not a solution.
const maxStated = 100

// Fault returns why a response, reasoning included, does not give the task's answer. It returns "" if the
// response's last mark holds that answer.
func (t *Task) Fault(response string) string {
	text, ok := final(response)
	if !ok {
		return EndlessText
	}
	m := find(text)
	switch {
	case answer.IsBlock(t.gold):
		return t.block(text)
	case !m.ok:
		return Unmarked
	case m.cut:
		return CutOff
	}
	return t.judge(m)
}

// FaultOf returns why got, the text of a mark, is not the task's answer, or "" if it is.
func (t *Task) FaultOf(got string) string {
	if answer.IsBlock(t.gold) {
		return answer.Fault(t.question, t.gold, got)
	}
	return t.judge(mark{text: got})
}

// Extract returns the text of a response's last mark, and whether there is one that is whole.
func Extract(response string) (string, bool) {
	m := find(Final(response))
	return m.text, m.ok && !m.cut
}

// block grades a response to a task whose answer has several lines. The lines are the text of the last
// mark, the text after "answer:", or the whole response.
func (t *Task) block(text string) string {
	text = strings.TrimSpace(text)
	m := tagged(text).later(boxed(text))
	if at := strings.LastIndex(text, "####"); at >= m.end && at >= 0 {
		m = mark{text: text[at+len("####"):], end: len(text), ok: true}
	}
	if at := announced(text); at > 0 && at >= m.end {
		m = mark{text: text[at:], end: len(text), ok: true}
	}
	if m.cut {
		return CutOff
	}
	if m.ok {
		text = m.text
	}
	return answer.Fault(t.question, t.gold, text)
}

// announced returns the offset after the last "answer:", "answer is:" or title "Answer", or 0.
func announced(text string) int {
	lower := folded(text)
	i := strings.LastIndex(lower, "answer")
	if i < 0 {
		return 0
	}
	rest := strings.TrimLeft(lower[i+len("answer"):], "*_ ")
	for _, verb := range []string{"is:", "is\n", ":", "\n"} {
		if after, ok := strings.CutPrefix(rest, verb); ok {
			return len(text) - len(strings.TrimLeft(after, "* \n"))
		}
	}
	return 0
}

// Correct reports whether response gives the answer want, whatever the question.
func Correct(response, want string) bool { return NewTask("", want).Fault(response) == "" }

// Canonical returns one text for equal answers, as far as equality is cheap to detect.
// want may be a solution with its answer marked.
func Canonical(want string) string { return answer.Canonical(Bare(want)) }

// Answered returns the canonical answer of a response, or "" if it gives none.
func Answered(response string) string {
	got, ok := Extract(response)
	if !ok {
		return ""
	}
	return answer.Canonical(got)
}

// FaultAny is Fault for models that mark no answer: without a whole mark, the last number of the
// response after its reasoning counts. A model that is trained on it learns to end in numbers.
func (t *Task) FaultAny(response string) string {
	fault := t.Fault(response)
	if number, ok := numeral(response, fault); ok {
		return answer.Fault(t.question, t.gold, number)
	}
	return fault
}

// AnsweredAny is Answered for FaultAny.
func AnsweredAny(response string) string {
	if number, ok := numeral(response, NewTask("", "").Fault(response)); ok {
		return answer.Canonical(number)
	}
	return Answered(response)
}

// numeral returns the last number of a response whose fault is that it has no whole mark.
func numeral(response, fault string) (string, bool) {
	if fault != Unmarked && fault != CutOff {
		return "", false
	}
	text := Final(response)
	text = text[max(0, len(text)-maxTail):]
	number := regexp.MustCompile(`-?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?%?`) // -1,234.5, 3/4 or 50%
	found := number.FindAllStringIndex(text, -1)
	if len(found) == 0 {
		return "", false
	}
	lo, hi := found[len(found)-1][0], found[len(found)-1][1]
	if text[lo] == '-' && (expr.DigitAt(text, lo-1) || expr.LetterAt(text, lo-1)) { // a hyphen
		lo++
	}
	return text[lo:hi], true
}
