package grade

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// NoAnswer is the fault of a response that gives no answer.
const NoAnswer = answer.NoAnswer

// Task is a question and its reference answer. It is not safe for concurrent use.
type Task struct {
	gold     string
	question *question.Question
}

// NewTask returns a task. text is the question and may be empty. want is a bare answer, or a
// solution with its answer boxed or after ####.
func NewTask(text, want string) *Task {
	text = text[max(0, len(text)-maxTail):]
	return &Task{gold: Bare(want), question: question.New(text, func() []string { return formulas(text) })}
}

// maxQuestion bounds how much of a question is read as formulas, in bytes from its end.
const maxQuestion = 1 << 13

// formulas returns the mathematics and numbers in a question.
func formulas(text string) (all []string) {
	for _, s := range sentence.Split(text[max(0, len(text)-maxQuestion):]) {
		for _, c := range s.Values() {
			all = append(all, c.Text)
		}
		all = append(all, s.Formulas()...)
	}
	return all
}

// Fault returns why a response, reasoning included, does not give the task's answer, or
// "" if it does. An answer inside <think> or cut off by the end of the response does not
// count.
func (t *Task) Fault(response string) string {
	if answer.IsBlock(t.gold) {
		return t.block(response)
	}
	said := find(response)
	if !said.marked && t.ends(said.text) {
		return ""
	}
	fault, readings := answer.NoAnswer, said.readings
	for _, got := range readings {
		if fault = answer.Fault(t.question, t.gold, got); fault != "" {
			continue
		}
		if answer.Opposes(t.question, readings[len(readings)-1]) {
			return answer.Altered
		}
		return t.vet(said)
	}
	return fault
}

// FaultOf returns why got, a bare answer, is not the task's, or "" if it is.
func (t *Task) FaultOf(got string) string { return answer.Fault(t.question, t.gold, got) }

// Hashed returns the rest of the line behind the last mark #### of a response, and whether
// there is one that no other kind of mark follows.
func Hashed(response string) (string, bool) {
	text := Final(response)
	i := strings.LastIndex(text, "####")
	if i < 0 {
		return "", false
	}
	line, _, _ := strings.Cut(text[i+len("####"):], "\n")
	end, _ := explicit(text)
	return line, end <= i+len("####")+len(line)
}

// block grades a response to a task whose answer has several lines: they follow the last
// mark, or are the whole response.
func (t *Task) block(response string) string {
	text := strings.TrimSpace(Final(response))
	if _, after, ok := words.CutLast(text, "<answer>"); ok {
		text, _, _ = strings.Cut(after, "</answer>")
	} else if boxed, _, ok := markup.Boxed(text); ok {
		text = boxed
	} else if _, after, ok := words.CutLast(text, "####"); ok {
		text = after
	} else if at := announced(text); at > 0 {
		text = text[at:]
	} else {
		text = answer.LastLines(text, t.gold)
		if first, _, _ := strings.Cut(t.gold, "\n"); !strings.Contains(first, ":") { // "Answer: 1 2"
			head, rest, _ := strings.Cut(text, "\n")
			if _, after, ok := words.CutLast(head, ":"); ok {
				text = after + "\n" + rest
			}
		}
	}
	return answer.Fault(t.question, t.gold, text)
}

// announced returns the offset behind the last line that ends in "answer:", or 0.
func announced(text string) int {
	lower := strings.ToLower(text)
	if len(lower) != len(text) {
		return 0
	}
	for _, end := range []string{"answer:", "answer:**", "answer**:", "answer is:"} {
		if i := strings.LastIndex(lower, end+"\n"); i >= 0 {
			return i + len(end)
		}
	}
	return 0
}

// Correct reports whether response gives the answer want, whatever the question.
func Correct(response, want string) bool { return NewTask("", want).Fault(response) == "" }
