package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// surroundings is what stands right before and after a value in a text, in lower case.
type surroundings struct {
	*Task
	before, value, after string
}

// fault returns why the words right before and after a value change it, or "".
func (s surroundings) fault() string {
	switch {
	case s.isConsumed(), s.isAltered(), s.isDerived() && !strings.Contains(s.after, ", the same as"), s.isCompared(), s.isImagined():
		return answer.Altered
	case s.isRange(), s.isRivalled(), s.isChained(), words.Ends(strings.TrimRight(s.before, " $"), "±", `\pm`), words.Contains(s.before, "if ") && words.Contains(s.after, "if not"):
		return answer.Several
	case s.isPerOther(), s.hasOtherSymbol(), s.isTimed(), s.isShare():
		return answer.OtherUnit
	case s.hasOtherBase():
		return answer.OtherForm
	}
	return ""
}

// hasOtherBase reports whether a subscript that follows a value makes it another number:
// "1101_{10}" for a number in base 2.
func (s surroundings) hasOtherBase() bool {
	digits, ok := strings.CutPrefix(s.after, "_{")
	base, _, closed := strings.Cut(digits, "}")
	return ok && closed && plainNumber(base) && s.FaultOf(s.value+"_{"+base+"}") != ""
}

// clause returns the text after the value up to the next sign of punctuation.
func (s surroundings) clause() string {
	after := s.after
	if end := strings.IndexAny(after, ",.;:()\n"); end >= 0 {
		after = after[:end]
	}
	return strings.Trim(strings.NewReplacer("*", " ", "$", " ").Replace(after[:min(len(after), maxLead)]), " ")
}

// near returns the first four words of the clause after the value.
func (s surroundings) near() []string {
	fields := strings.Fields(s.clause())
	return fields[:min(len(fields), 4)]
}

// isAltered reports whether phrases right before or after a value change it.
func (s surroundings) isAltered() bool {
	before, after := strings.TrimRight(s.before, " $*\\("), strings.TrimLeft(s.after, " $*")
	switch {
	case words.Ends(before, " answer would be") && words.Contains(s.before, "if "), words.Contains(s.before, " would ") && strings.Contains(after, " if you "):
		return true
	case words.Ends(before, " in") && strings.HasPrefix(after, "year") && s.question.Asks("how old"):
		return true
	case words.Ends(before, " missing", " lacking", " misses", " lacks"):
		return !s.question.Asks("miss", "lack")
	case words.Contains(before, "[insert ", "e.g."):
		return true
	case words.Begins(after, "or so", "-ish", "ish "), words.Contains(after, " or so.", " only when", " only on ", " only in case"):
		return true
	}
	clause := s.clause()
	if strings.HasSuffix(clause, " to go") && !s.question.Asks("left", "remain", "to go", "still", "more", "need") {
		return true
	}
	fields := strings.Fields(clause)
	for i, f := range fields {
		if (f == "not" || strings.HasSuffix(f, "n't")) && i > 0 && words.OneOf(fields[i-1], "does", "do", "did", "is", "are", "was", "were", "has", "have") && !s.question.Asks("not", "n't", "without", "left", "remain", "neither", "no ") {
			return true
		}
	}
	if len(fields) > 1 && words.OneOf(fields[0], "fewer", "less") && fields[1] != "than" && !s.question.Asks(" "+fields[0], "differ", "exceed") {
		return true
	}
	return false
}

// isDerived reports whether the subject of a value is computed from what the question asks for,
// or beside it: "twice the number of handshakes is 10", "the term before the 10th is 39".
func (s surroundings) isDerived() bool {
	before := strings.TrimRight(s.before, " $*\\(:")
	head, ok := before, false
	for _, verb := range []string{" is", " was", " are", " were", " equals", " makes", " has length", " has area", " measures", " =", " is exactly", " comes to"} {
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
		case s.question.Has(f):
		case words.OneOf(f, "twice", "double", "triple", "thrice", "half", "quadruple") && i < 2 && words.OneOf(next, "the", "this", "that", "of", "its", "his", "her", "their", "my", "our"),
			words.OneOf(f, "square", "cube", "half", "double", "triple", "reciprocal") && i+1 == len(fields) && i > 0 && words.OneOf(fields[i-1], "its", "the", "their"),
			words.OneOf(f, "square", "cube", "reciprocal", "negative", "inverse", "opposite", "complement", "third", "quarter", "tenth", "double", "logarithm") && next == "of" && i+2 < len(fields) && words.OneOf(fields[i+2], "the", "this", "that", "it"),
			words.OneOf(f, "before", "after", "preceding", "previous", "beside") && i > 0 && (next == "the" || words.OneOf(fields[i-1], "the", "one", "term", "number")) && words.OneOf(fields[i-1], "term", "number", "one", "integer", "prime", "the", "letter", "day", "month", "year", "digit"):
			return true
		}
	}
	return false
}

// isConsumed reports whether a value counts what is gone, but the question asks what is left:
// "18 apples were eaten".
func (s surroundings) isConsumed() bool {
	asked, _, _ := strings.Cut(s.question.Last(), " if ")
	if !words.Contains(asked, " left", "remain") {
		return false
	}
	near := s.near()
	for i, f := range near {
		if i+1 < len(near) && words.OneOf(f, "were", "was", "are", "is", "got", "have", "had") {
			return words.OneOf(near[i+1], "eaten", "sold", "used", "lost", "spent", "gone", "taken", "removed", "broken", "decayed", "melted", "drunk", "read")
		}
	}
	return false
}

// isCompared reports whether a value is only how much something exceeds or lacks: "4 units below
// neutral", "70 less than 100". It is not if the question asks by how much.
func (s surroundings) isCompared() bool {
	near := s.near()
	for i, f := range near {
		if i+1 == len(near) {
			break
		}
		switch next := near[i+1]; {
		case i > 0 && words.OneOf(f, "below", "above", "under", "beneath", "beyond", "past", "short"):
			return !s.question.Has(f) && !s.question.Asks("how much", "how far", "how many", "temperature", "degrees", "differ", "height", "elevation", "altitude", "high")
		case i == 0 && words.OneOf(f, "less", "more", "fewer", "greater", "larger", "smaller") && next == "than" && len(near) > 2 && expr.DigitAt(near[2], 0):
			return words.HasDigit(s.gold) && !s.question.LastHas("how many more", "how many less", "how many fewer", "how much", "by what", "differ", "exceed")
		}
	}
	return false
}

// isImagined reports whether a sentence gives its value under a condition that it denies: "If the
// clock ran backwards it would be 120, but it does not".
func (s surroundings) isImagined() bool {
	return words.Contains(s.before, " would ", "'d be") && words.Contains(s.before, "if ", "had ", "were ") &&
		words.Contains(s.after, "but it does", "but it is not", "but it isn't", "but that is not", "but that's not", "but this is not", "but they do", "which is not the case", "but not here")
}

// isRange reports whether a value is an end of a range: "2 to 3", "between 2 and 3".
func (s surroundings) isRange() bool {
	if !plainNumber(s.value) {
		return false
	}
	before := strings.TrimRight(s.before, " $*")
	for _, word := range []string{"between ", "one of "} {
		_, rest, _ := words.CutLast(before, word)
		from, and, _ := strings.Cut(rest, " ")
		if plainNumber(strings.Trim(from, "$*")) && strings.Trim(and, " $*") == "and" {
			return true
		}
	}
	if head, ok := strings.CutSuffix(before, " to"); ok {
		number := head[strings.LastIndexAny(head, " $*")+1:]
		lead := strings.Fields(head[:len(head)-len(number)])
		return plainNumber(number) && (len(lead) == 0 || words.OneOf(lead[len(lead)-1], "is", "are", "be", "was", "were", "get", "answer", "answer:", "like", "of"))
	}
	rest, ok := strings.CutPrefix(strings.TrimLeft(s.after, " $*"), "to ")
	number := strings.Trim(words.First(strings.TrimLeft(rest, "$*")), "$*.,;")
	lead := strings.Fields(before)
	return ok && plainNumber(number) && number != s.value && len(lead) > 0 && words.OneOf(lead[len(lead)-1], "is", "are", "be", "was", "were", "about")
}

// isChained reports whether a chain of equations gives a value and a different number:
// "6·60 = 300 = 360".
func (s surroundings) isChained() bool {
	head, ok := strings.CutSuffix(strings.TrimRight(s.before, " $*"), "=")
	if !ok || !plainNumber(s.value) {
		return false
	}
	head = strings.TrimRight(head, " $")
	number := head[strings.LastIndexAny(head, " =$")+1:]
	return plainNumber(number) && strings.HasSuffix(strings.TrimRight(head[:len(head)-len(number)], " $"), "=") && !answer.SameValue(number, s.value)
}

func plainNumber(s string) bool { return s != "" && strings.Trim(s, "-0123456789.") == "" }

// isRivalled reports whether another value, or doubt about this one, in parentheses follows a
// value: "9 (10)", "1914 (some would put 1915)".
func (s surroundings) isRivalled() bool {
	rest, open := strings.CutPrefix(strings.TrimLeft(s.after, " $*"), "(")
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
	return words.HasDigit(number) && !answer.SameValue(s.gold, number)
}
