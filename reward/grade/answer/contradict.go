package answer

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Opposes reports whether a sentence speaks of the opposite of what the question asks for,
// as "it gains 24 minutes" does if it asks how many it loses.
func Opposes(q *question.Question, sentence string) bool {
	if q.Text == "" {
		return false
	}
	last, lower := " "+q.Last(), " "+strings.ToLower(sentence)
	if words.Begins(lower, " yes,", " no,") { // "Yes, it diverges"
		last = " " + q.From("")
	}
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
		{"largest", "smallest"}, {"oldest", "youngest"}, {"highest", "lowest"}, {"converge", "diverge"}, {"happen", "fail"}, {"pass", "fail"}}
}

// OtherQuantity reports whether the text before a value calls it a quantity, such as an
// area, and the last sentence of the question names only others.
func OtherQuantity(q *question.Question, text string) bool {
	text = strings.TrimRight(strings.ToLower(text), " $*\\(")
	head, ok := strings.CutSuffix(text, " is")
	if !ok {
		head, ok = strings.CutSuffix(text, " equals")
	}
	if at := strings.LastIndex(head, " of "); at >= 0 && !strings.ContainsAny(head[at:], ",.;:") {
		head = head[:at]
	}
	return ok && isOther(q, head)
}

// isOther reports whether a name in lower case is that of a quantity, and what the question asks for
// is another one.
func isOther(q *question.Question, name string) bool {
	return q.Text != "" && q.WantedHas(append(quantities(), "side")...) &&
		slices.ContainsFunc(quantities(), func(other string) bool {
			return strings.Contains(name, other) && !q.WantedHas(other)
		})
}

// quantities returns names of quantities of which one is not another.
func quantities() []string {
	return []string{"area", "perimeter", "circumference", "radius", "diameter", "volume", "speed", "distance", "slope", "intercept", "median", "mean", "numerator", "denominator", "hypotenuse",
		"width", "height", "remainder", "quotient", "product", "sum", "difference"}
}
