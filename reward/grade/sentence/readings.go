package sentence

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/words"
)

// Concluding returns the concluding clause of a sentence, or all of it.
func (s Sentence) Concluding() string { return s.Text[s.clauses().conclusion():] }

// Readings returns the main candidate of a sentence, and the whole sentence for answers
// in words.
func (s Sentence) Readings() []string {
	found := s.Main()
	if digits, ok := s.counted(); ok {
		return []string{digits}
	}
	other := slices.ContainsFunc(s.Meant(), func(c Value) bool { return !c.Aside || c.Sum })
	if digits, ok := spelled(s.Text); ok && !other {
		found = []string{digits} // "seven in 4 weeks"
	}
	if parts := strings.Split(s.Text, "**"); len(parts) >= 3 && !words.HasDigit(parts[len(parts)-2]) {
		found = append(found, parts[len(parts)-2])
	}
	if letter, ok := choice(s.Text); ok {
		found = append(found, letter)
	}
	if from := s.clauses().conclusion(); from > 0 && !slices.ContainsFunc(s.Values(), func(c Value) bool { return c.Lo > from }) && derives(s.Text[from:]) {
		return []string{strings.TrimLeft(s.Text[from:], ", ;")} // 24, so it is half of that
	}
	if from := s.clauses().conclusion(); from > 0 && !words.HasDigit(s.Text[from:]) {
		found = append(found, strings.TrimLeft(s.Text[from:], ", ;"))
	}
	if at := strings.LastIndex(s.Text, ": "); at >= 0 && strings.Trim(s.Text[at+2:], " ,.-*\n0123456789") == "" {
		found = append(found, s.Text[at+2:])
	}
	if word, ok := verdict(s.Text); ok {
		found = append(found, word)
	}
	if head, last, ok := words.CutLast(s.Text, ": "); ok && len(strings.Fields(last)) < 3 && !words.HasDigit(s.Text) && !words.Negated(head, nil) {
		found = append(found, last)
	}
	if head, _, ok := strings.Cut(s.Text, ", not "); ok {
		found = append(found, strings.TrimSpace(head))
	}
	return append(found, strings.TrimPrefix(strings.TrimSpace(s.Text), "A: "))
}

// derives reports whether a clause without numbers computes with those before it.
func derives(clause string) bool {
	return words.Contains(clause, " half of", " twice", " double", " the rest", " that minus", " that plus", " less than", " more than")
}

// counted returns the number in words that a sentence concludes after its reason:
// "Since 9 > 0, there are two solutions".
func (s Sentence) counted() (string, bool) {
	at := strings.LastIndex(s.Text, ", ")
	lower := strings.ToLower(strings.TrimSpace(s.Text))
	if at < 0 || !words.Begins(lower, "since ", "because ", "as ") {
		return "", false
	}
	if slices.ContainsFunc(s.Values(), func(c Value) bool { return c.Lo > at }) {
		return "", false
	}
	return spelled(s.Text[at:])
}

// choice returns the letter that a sentence chooses: "I choose option B", "B is the
// correct answer".
func choice(s string) (string, bool) {
	if _, after, ok := strings.Cut(s, "选"); ok { // Chinese: "choose"
		if letter := strings.Trim(after, " ().,:$*\n"); len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'J' {
			return letter, true
		}
	}
	fields := strings.Fields(s)
	if letter, ok := lastLetter(fields); ok {
		return letter, true
	}
	for k := len(fields) - 1; k >= 0; k-- {
		letter := strings.Trim(fields[k], "().,:;*$")
		if len(letter) != 1 || letter[0] < 'A' || letter[0] > 'J' {
			continue
		}
		before, after := strings.ToLower(strings.Join(fields[max(0, k-1):k], " ")), strings.ToLower(strings.Join(fields[k+1:min(len(fields), k+4)], " "))
		switch {
		case len(fields) == 2 && words.Concludes(s) && strings.Contains(fields[k], "("), (before == "is" || before == "equals" || before == "be") && after == "":
			return letter, true
		case before == "option", before == "choice", before == "leaves", before == "leaving", before == "choose", before == "pick", before == "select", strings.HasPrefix(after, "is the correct"), strings.HasPrefix(after, "is correct"), strings.HasPrefix(after, "is the answer"), strings.HasPrefix(after, "is the right"):
			return letter, true
		}
	}
	return "", false
}

// lastLetter returns the letter that ends a sentence if it is the only one: "The coin is
// in jar B."
func lastLetter(fields []string) (letter string, ok bool) {
	for k, f := range fields {
		if f = strings.Trim(f, "().,:;*$"); len(f) == 1 && f[0] > 'A' && f[0] <= 'H' {
			if letter != "" && letter != f {
				return "", false
			}
			letter, ok = f, k == len(fields)-1 && k > 0 && strings.Trim(fields[k-1], "*") != "not"
		}
	}
	return letter, ok
}

// verdict returns the yes or no that is the only clause of its kind in a sentence: "so no,
// because 11 is odd".
func verdict(s string) (word string, ok bool) {
	for _, clause := range strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return strings.ContainsRune(",;:.—–!*", r) }) {
		fields := strings.Fields(clause)
		for len(fields) > 1 && words.OneOf(fields[0], "so", "then", "therefore", "hence", "thus", "and") {
			fields = fields[1:]
		}
		if len(fields) == 1 && words.OneOf(fields[0], "yes", "no") {
			if ok {
				return "", false
			}
			word, ok = fields[0], true
		}
	}
	return word, ok
}
