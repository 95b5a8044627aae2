// Package wording recognizes what a sentence does by its words: conclude, correct, give
// up.
package wording

import (
	"slices"
	"strings"
)

// Concludes reports whether a sentence begins like a conclusion.
func Concludes(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*#-✅"))
	for _, word := range []string{"therefore", "thus", "so", "hence", "in total", "in conclusion", "altogether", "finally", "consequently", "overall", "to conclude", "this means", "as a result", "final"} {
		if rest, ok := strings.CutPrefix(s, word); ok && !startsWithLetter(rest) {
			return true
		}
	}
	return false
}

// Remarks reports whether a sentence begins like a check or an explanation.
func Remarks(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*#-✅✓("))
	for _, begin := range []string{"check", "verif", "we can check", "we can verify", "to verify", "to check", "note", "this is because", "this matches",
		"this makes sense", "this answer", "this result", "this is consistent", "indeed", "remember", "as a check", "for reference", "this agrees", "this confirms"} {
		if strings.HasPrefix(s, begin) {
			return true
		}
	}
	return false
}

// Corrects reports whether a sentence takes something back.
func Corrects(s string) bool {
	fields := strings.FieldsFunc(strings.ToLower(s[:min(len(s), 200)]), func(r rune) bool { return r < 'a' || r > 'z' })
	for i, f := range fields {
		switch f {
		case "wait", "actually", "correction", "oops", "mistake", "scratch", "wrong", "incorrect", "recheck", "recalculate", "redo", "apologize", "correcting":
			return true
		case "error", "sorry":
			return i < 6
		}
	}
	return false
}

// IsCutOff reports whether a sentence is unfinished work.
func IsCutOff(s string) bool {
	s = strings.TrimLeft(s, " *#-")
	if strings.HasSuffix(s, "...") && !strings.ContainsAny(s, "0123456789") {
		return true
	}
	if s == "" || !startsWithLetter(s[len(s)-1:]) || strings.ContainsAny(s, "0123456789\n") || len(strings.Fields(s)) < 4 {
		return false
	}
	return slices.ContainsFunc([]string{"To ", "Now", "Next", "Then ", "We ", "Let", "First", "Since", "If ", "Finally, we", "So we", "And "}, func(begin string) bool { return strings.HasPrefix(s, begin) })
}

// RepeatsQuestion reports whether a sentence only repeats the question.
func RepeatsQuestion(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	return strings.HasSuffix(s, "?") && !strings.Contains(s, "=") || slices.ContainsFunc([]string{"we need to find", "we want to find", "we are asked", "we must find", "we have to find", "the question asks", "the problem asks",
		"the problem says", "the question says", "let's find", "let us find"}, func(begin string) bool {
		return strings.HasPrefix(s, begin) && !strings.Contains(s, ", which is ") && !strings.Contains(s, "=")
	})
}

// GivesUp reports whether a sentence states that no answer can be given.
func GivesUp(s string) bool {
	s = strings.ReplaceAll(strings.ToLower(s), "’", "'")
	return slices.ContainsFunc([]string{"need more information", "not enough information", "insufficient information", "cannot be determined", "can't be determined",
		"cannot determine", "can't determine", "cannot solve", "can't solve", "unable to", "don't know", "do not know", "not sure", "can't decide", "cannot decide",
		"cannot answer", "can't answer", "cannot help", "can't help"}, func(phrase string) bool { return strings.Contains(s, phrase) })
}

// IsChat reports whether a sentence addresses the reader.
func IsChat(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*(_>#-"))
	for _, begin := range []string{"i hope", "let me know", "feel free", "note:", "note that this assumes", "do you", "would you", "please", "hope this", "is there", "thank",
		"confidence", "difficulty", "source:", "rating", "i'm confident", "i am confident", "tags:", "topic:"} {
		if strings.HasPrefix(s, begin) {
			return true
		}
	}
	if strings.HasPrefix(s, "if you") && (strings.Contains(s, "question") || strings.Contains(s, "help") || strings.Contains(s, "let me know")) {
		return true
	}
	return strings.Trim(s, " \n*#-_=.`$\\[]()") == ""
}

// Restates reports whether the words between two values announce a restatement.
func Restates(between string) bool {
	for _, word := range []string{"or", "which is", "i.e.", "that is", "=", "(", "which equals"} {
		if strings.Contains(between, word) && len(between) < 40 {
			return true
		}
	}
	return false
}

// Rounds reports whether a rounded value follows the exact one.
func Rounds(between string) bool {
	switch strings.Trim(between, " $(,") {
	case "≈", "~", `\approx`, "which is approximately", "which is about", "or approximately", "or about", "approximately":
		return true
	}
	return false
}

// Continues reports whether "and" joins two items of one phrase, as in "for 4 tickets and
// 2 drinks".
func Continues(between string) bool {
	fields := strings.Fields(strings.ToLower(between))
	n := len(fields)
	return n >= 2 && n <= 4 && (fields[n-1] == "and" || fields[n-1] == "or") && !strings.ContainsAny(between, ",.;:")
}

func startsWithLetter(s string) bool { return s != "" && s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z' }
