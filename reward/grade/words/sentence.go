package words

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Concludes reports whether a sentence begins like a conclusion.
func Concludes(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*#-✅"))
	for _, word := range []string{"therefore", "thus", "so", "hence", "in total", "in conclusion", "altogether", "finally", "consequently", "overall", "to conclude", "this means", "as a result", "final"} {
		if rest, ok := strings.CutPrefix(s, word); ok && !expr.LetterAt(rest, 0) {
			return true
		}
	}
	return false
}

// Remarks reports whether a sentence begins like a check or an explanation.
func Remarks(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*#-✅✓("))
	return Begins(s, "check", "verif", "we can check", "we can verify", "to verify", "to check", "note", "this is because", "this matches",
		"this makes sense", "this answer", "this result", "this is consistent", "indeed", "remember", "as a check", "for reference", "to double-check", "double-check", "checking", "this agrees", "this confirms")
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

// Replaces returns the answer by which a sentence replaces the one before it: 3 of "Actually,
// it should be 3", 360 of "No, sorry, 360".
func Replaces(s string) (string, bool) {
	lower := strings.ToLower(s)
	if len(lower) != len(s) || len(s) > 160 {
		return "", false
	}
	begin := strings.TrimLeft(lower, " \n*(—–-")
	taken := Begins(begin, "no, ", "no: ", "or no, ", "sorry", "hmm", "oops", "actually", "correction", "wait", "scratch that", "rather,", "or rather", "on second thought", "i mean ", "make that ") ||
		Contains(lower, "on second thought", "take that back", "changed my mind")
	if !taken {
		return "", false
	}
	for _, mark := range []string{"thoughts: ", "thought: ", "thoughts, ", "thought, ", "should be ", "should have been ", "sorry, ", "make that ", "i mean ", "rather, ", "correction: ", "no: ", "that, ", "take that back, ", "i now believe ", "i now think "} {
		if at := strings.LastIndex(lower, mark); at >= 0 {
			after := strings.TrimLeft(strings.TrimRight(s[at+len(mark):], " .!\n*"), " *")
			after = strings.TrimPrefix(strings.TrimPrefix(after, "it is "), "it's ")
			after, _, _ = strings.Cut(after, " is ")
			if after != "" && len(strings.Fields(after)) <= 3 {
				return after, true
			}
		}
	}
	return "", false
}

// IsCutOff reports whether a sentence is unfinished work.
func IsCutOff(s string) bool {
	s = strings.TrimLeft(s, " *#-")
	if strings.HasSuffix(s, "...") && !HasDigit(s) {
		return true
	}
	if s == "" || !expr.LetterAt(s, len(s)-1) || strings.ContainsAny(s, "0123456789\n") || len(strings.Fields(s)) < 4 {
		return false
	}
	return Begins(s, "To ", "Now", "Next", "Then ", "We ", "Let", "First", "Since", "If ", "Finally, we", "So we", "And ")
}

// RepeatsQuestion reports whether a sentence only repeats the question.
func RepeatsQuestion(s string) bool {
	s = strings.ToLower(strings.TrimSpace(s))
	if strings.Contains(s, "=") {
		return false
	}
	return strings.HasSuffix(s, "?") || !strings.Contains(s, ", which is ") && Begins(s, "we need to find", "we want to find", "we are asked", "we must find",
		"we have to find", "the question asks", "the problem asks", "the problem says", "the question says", "let's find", "let us find")
}

// GivesUp reports whether a sentence states that no answer can be given.
func GivesUp(s string) bool {
	s = strings.ReplaceAll(strings.ToLower(s), "’", "'")
	return Contains(s, "need more information", "not enough information", "insufficient information", "cannot be determined", "can't be determined",
		"cannot determine", "can't determine", "cannot solve", "can't solve", "unable to", "don't know", "do not know", "not sure", "can't decide", "cannot decide",
		"cannot answer", "can't answer", "take that back", "take it back", "give no answer", "cannot help", "can't help")
}

// IsChat reports whether a sentence addresses the reader.
func IsChat(s string) bool {
	s = strings.ToLower(strings.TrimLeft(s, " \n*(_>#-"))
	if Begins(s, "i hope", "let me know", "feel free", "note:", "note that this assumes", "do you", "would you", "please", "hope this", "is there", "thank",
		"confidence", "difficulty", "source:", "rating", "i'm confident", "i am confident", "tags:", "topic:") {
		return true
	}
	if strings.HasPrefix(s, "if you") && Contains(s, "question", "help", "let me know") {
		return true
	}
	return strings.Trim(s, " \n*#-_=.`$\\[]()") == ""
}

// Restates reports whether the words between two values announce a restatement.
func Restates(between string) bool {
	return len(between) < 40 && Contains(between, "or", "which is", "which equals", "i.e.", "that is", "=", "(")
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

// First returns the first word of s, or "".
func First(s string) string {
	if f := strings.Fields(s); len(f) > 0 {
		return f[0]
	}
	return ""
}

// Prose reports whether s has two consecutive words outside commands.
func Prose(s string) bool {
	run, words := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			for expr.LetterAt(s, i+1) {
				i++
			}
			if strings.HasPrefix(s[i+1:], "{") { // skip words in \text{}
				if end := strings.IndexByte(s[i+1:], '}'); end > 0 {
					i += end
				}
			}
			run, words = 0, 0
		case expr.LetterAt(s, i):
			if run++; run == 2 {
				words++
			}
		case s[i] == ' ':
			run = 0
		default:
			run, words = 0, 0
		}
		if words >= 2 {
			return true
		}
	}
	return false
}
