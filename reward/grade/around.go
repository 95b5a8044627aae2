package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// vetAround returns why the words right before and after a value make it another one, or "".
func (t *Task) vetAround(before, value, after string) string {
	before, after = strings.ToLower(before), strings.ToLower(after)
	switch {
	case t.consumed(after), t.derived(before) && !strings.Contains(after, ", the same as"), t.compared(after), imagined(before, after):
		return answer.Altered
	case ranges(before, value, after), t.rivalled(after):
		return answer.Several
	case t.perOther(after):
		return answer.OtherUnit
	}
	return ""
}

// derived reports whether the subject of a value is computed from what the question asks for,
// or beside it: "twice the number of handshakes is 10", "the term before the 10th is 39".
func (t *Task) derived(before string) bool {
	before = strings.TrimRight(before, " $*\\(:")
	head, ok := before, false
	for _, verb := range []string{" is", " was", " are", " were", " equals", " makes", " =", " is exactly", " comes to"} {
		if head, ok = strings.CutSuffix(before, verb); ok {
			break
		}
	}
	if !ok {
		return false
	}
	head = head[strings.LastIndexAny(head, ",.;:!?\n")+1:]
	if len(head) > 100 {
		return false
	}
	fields := strings.Fields(head)
	for i, f := range fields {
		next := ""
		if i+1 < len(fields) {
			next = fields[i+1]
		}
		switch {
		case t.question.Has(f):
		case words.OneOf(f, "twice", "double", "triple", "thrice", "half", "quadruple") && i < 2 && words.OneOf(next, "the", "this", "that", "of", "its", "his", "her", "their", "my", "our"),
			words.OneOf(f, "square", "cube", "reciprocal", "negative", "inverse", "opposite", "complement", "third", "quarter", "tenth", "double", "logarithm") && next == "of" && i+2 < len(fields) && words.OneOf(fields[i+2], "the", "this", "that", "it"),
			words.OneOf(f, "before", "after", "preceding", "previous", "beside") && i > 0 && (next == "the" || words.OneOf(fields[i-1], "the", "one", "term", "number")) && words.OneOf(fields[i-1], "term", "number", "one", "integer", "prime", "the", "letter", "day", "month", "year", "digit"):
			return true
		}
	}
	return false
}

// consumed reports whether a value is of what is gone although the question asks for what is
// left: "18 apples were eaten".
func (t *Task) consumed(after string) bool {
	asked, _, _ := strings.Cut(t.question.Last(), " if ")
	if !words.Contains(asked, " left", "remain") {
		return false
	}
	fields := strings.Fields(after[:min(len(after), 60)])
	for i, f := range fields[:min(len(fields), 3)] {
		if strings.ContainsAny(f, ".,;:(") {
			return false
		}
		if i+1 < len(fields) && words.OneOf(f, "were", "was", "are", "is", "got", "have", "had") {
			return words.OneOf(strings.Trim(fields[i+1], ".,!*"), "eaten", "sold", "used", "lost", "spent", "gone", "taken", "removed", "broken")
		}
	}
	return false
}

// compared reports whether a value is only how much something exceeds or lacks: "4 units below
// neutral", "70 less than 100". It is not if the question asks by how much.
func (t *Task) compared(after string) bool {
	fields := strings.Fields(strings.NewReplacer("$", " ", "*", " ", ",", " , ", ".", " . ", ";", " ; ", "(", " ( ").Replace(after[:min(len(after), 60)]))
	for i, f := range fields[:min(len(fields), 3)] {
		next := ""
		if i+1 < len(fields) {
			next = fields[i+1]
		}
		switch {
		case strings.ContainsAny(f, ",.;("):
			return false
		case i > 0 && words.OneOf(f, "below", "above", "under", "beneath", "beyond", "past", "short") && next != "" && !strings.ContainsAny(next, ",.;("):
			return !t.question.Has(f) && !t.question.Asks("how much", "how far", "how many", "temperature", "degrees", "differ", "height", "elevation", "altitude", "high")
		case i == 0 && words.OneOf(f, "less", "more", "fewer", "greater", "larger", "smaller") && next == "than" && i+2 < len(fields) && expr.DigitAt(fields[i+2], 0):
			return words.HasDigit(t.gold) && !t.question.LastHas("how many more", "how many less", "how many fewer", "how much more", "how much less", "how much", "by what", "differ", "exceed")
		}
	}
	return false
}

// imagined reports whether a sentence gives its value under a condition that it denies: "If the
// clock ran backwards it would be 120, but it does not".
func imagined(before, after string) bool {
	return words.Contains(before, " would ", "'d be") && words.Contains(before, "if ", "had ", "were ") &&
		words.Contains(after, "but it does", "but it is not", "but it isn't", "but that is not", "but that's not", "but this is not", "but they do", "but he do", "but she do", "which is not the case", "but not here")
}

// ranges reports whether a value is an end of a range: "2 to 3", "between 2 and 3".
func ranges(before, value, after string) bool {
	if !plainNumber(value) {
		return false
	}
	before = strings.TrimRight(before, " $*")
	if head, ok := strings.CutSuffix(before, " to"); ok {
		number := head[strings.LastIndexAny(head, " $*")+1:]
		lead := strings.Fields(head[:len(head)-len(number)])
		return plainNumber(number) && (len(lead) == 0 || words.OneOf(lead[len(lead)-1], "is", "are", "be", "was", "were", "get", "answer", "answer:", "like", "of"))
	}
	rest, ok := strings.CutPrefix(strings.TrimLeft(after, " $*"), "to ")
	number := strings.Trim(words.First(strings.TrimLeft(rest, "$*")), "$*.,;")
	lead := strings.Fields(before)
	return ok && plainNumber(number) && number != value && len(lead) > 0 && words.OneOf(lead[len(lead)-1], "is", "are", "be", "was", "were", "about")
}

func plainNumber(s string) bool { return s != "" && strings.Trim(s, "-0123456789.") == "" }

// rivalled reports whether another value, or doubt about this one, in parentheses follows a
// value: "9 (10)", "1914 (some would put 1915)".
func (t *Task) rivalled(after string) bool {
	rest, open := strings.CutPrefix(strings.TrimLeft(after, " $*"), "(")
	inside, _, closed := strings.Cut(rest, ")")
	if !open || !closed {
		return false
	}
	number := strings.Trim(inside, " $*")
	if !plainNumber(strings.NewReplacer(",", "", "/", "").Replace(number)) {
		fields := strings.FieldsFunc(inside, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if len(fields) == 0 || !words.OneOf(fields[0], "some", "others", "or", "maybe", "perhaps", "possibly", "alternatively", "sometimes") {
			return false
		}
		number = strings.TrimSuffix(inside[strings.LastIndexAny(inside, " $")+1:], ".")
	}
	return words.HasDigit(number) && !answer.SameValue(t.gold, number)
}

// perOther reports whether a value is a rate per something that the question does not name:
// "3 seconds per kilometre".
func (t *Task) perOther(after string) bool {
	fields := strings.Fields(after[:min(len(after), 60)])
	for i, f := range fields[:min(len(fields), 3)] {
		if strings.ContainsAny(f, ".,;:(") {
			return false
		}
		if f == "per" && i+1 < len(fields) {
			of := strings.Trim(fields[i+1], ".,;:*$")
			return !t.question.Has(of) && measure.Kind(of) != "time" && of != "month" && of != "year" && !t.question.LastHas(" per ", "rate", "each", "every", "average", "speed") && !strings.Contains(t.gold, of)
		}
	}
	return false
}
