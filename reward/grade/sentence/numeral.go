package sentence

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// spelled returns the last number in words of a sentence.
func spelled(s string) (string, bool) {
	fields := strings.Fields(strings.ToLower(s))
	for k := len(fields) - 1; k >= 0; k-- {
		if !countsAt(fields, k) {
			continue
		}
		for k > 0 && (isNumberWord(fields[k-1]) || fields[k-1] == "one") {
			k--
		}
		end := k
		for end < len(fields) && !words.HasDigit(fields[end]) {
			end++
		}
		return words.Spelled(strings.Join(fields[k:end], " "))
	}
	return "", false
}

// countsAt reports whether the word at k is a number. "one" counts if it cannot be a
// pronoun: "exactly one", "is one", "one third".
func countsAt(fields []string, k int) bool {
	f := strings.Trim(fields[k], ".,*!")
	if isNumberWord(f) {
		return true
	}
	if f == "half" {
		return k+1 < len(fields) && (fields[k+1] == "a" || fields[k+1] == "an")
	}
	if f != "one" {
		return false
	}
	if k+3 < len(fields) && fields[k+1] == "and" && strings.HasPrefix(fields[k+3], "half") {
		return true
	}
	if k > 0 && k+1 < len(fields) && words.OneOf(fields[k-1], "has", "have", "had", "gets", "leaves", "costs", "takes") && measure.IsUnit(fields[k+1]) {
		return true
	}
	if k+1 < len(fields) {
		if text, ok := words.Spelled("one " + fields[k+1]); ok && strings.HasPrefix(text, "1/") {
			return true
		}
	}
	return k > 0 && words.OneOf(fields[k-1], "exactly", "only", "just", "is") && (k+1 == len(fields) || !strings.HasPrefix(fields[k+1], "of"))
}

func isNumberWord(f string) bool {
	f, _, _ = strings.Cut(strings.Trim(f, ".,*!"), "-")
	_, ok := words.Spelled(f)
	return ok && f != "one"
}

// SpellsNumber reports whether a sentence concludes and has a number in words.
func (s Sentence) SpellsNumber() bool {
	return (words.Concludes(s.Text) || strings.Contains(s.Text, ", so ")) && slices.ContainsFunc(strings.Fields(strings.ToLower(s.Text)), isNumberWord)
}
