package words

import (
	"slices"
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
		"this makes sense", "this answer", "this result", "this is consistent", "indeed", "remember", "as a check", "for reference", "this agrees", "this confirms")
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

// Before returns the words at the end of text that change the value after them, as in
// "more than" and "half of", or "".
func Before(text string) string {
	text = strings.ToLower(text)
	if strings.HasSuffix(text, "~~") {
		return "not" // struck out
	}
	text = strings.TrimRight(text, " $*(\\~")
	if head, ok := strings.CutSuffix(text, " of"); ok && strings.TrimSpace(head) != "" && strings.IndexByte("0123456789}", strings.TrimRight(head, " ")[len(strings.TrimRight(head, " "))-1]) >= 0 {
		return "times" // 1/3 of
	}
	for _, sign := range []string{">", "<", "≥", "≤", "≠", "!="} {
		if Ends(text, " "+sign, "`"+sign) || sign == "!=" && strings.HasSuffix(text, sign) {
			return sign
		}
	}
	if Ends(text, emphatic()...) {
		return ""
	}
	for _, word := range []string{"more than", "less than", "fewer than", "greater than", "larger than", "smaller than", "bigger than", "higher than", "lower than", "at least", "at most",
		"no more than", "no less than", "under", "below", "above", "up to", "almost", "nearly", "exceeding", "short of", "half", "half of", "twice", "double", "triple", "thrice",
		"third of", "quarter of", "multiple of", "power of", "factor of", "divisor of", "complement of", "supplement of", "opposite of", "negative of", "inverse of", "reciprocal of",
		"cube of", "square of", "cube root of", "square root of", "root of", "logarithm of", "factorial of", "derivative of", "loss of", "except", "excluding", "not", "never",
		"can't be", "cannot be", "isn't", "wouldn't be", "anything but", "all but", "minus", "divided by", "instead of", "other than", "anything other than", "else than", "nowhere near", "not near", "close to", "near", "far from", "different from", "divisible by", "not necessarily", "to the power", "to the power of", "two times", "three times", "four times", "five times", "six times", "ten times", "between", "unlike", "not equal to", "not equal",
		"rises by", "falls by", "increases by", "decreases by", "grows by", "shrinks by", "drops by", "starts with", "begins with", "ends in", "ends with", "logarithm of", "integer after", "integer before", "number after", "number before"} {
		head, ok := strings.CutSuffix(text, word)
		if !ok || head != "" && expr.LetterAt(head, len(head)-1) {
			continue
		}
		verb := strings.TrimRight(head, " ")
		verb = verb[strings.LastIndexByte(verb, ' ')+1:]
		if word == "up to" && slices.Contains([]string{"adds", "add", "adding", "comes", "rounds", "rounded", "rounding", "round", "sums"}, verb) {
			return ""
		}
		return strings.ReplaceAll(word, "'", "")
	}
	if Negates(text) {
		return "not"
	}
	return ""
}

// Negates reports whether the clause that text, in lower case, ends in has a negation:
// "she does not have".
func Negates(text string) bool {
	if strings.Contains(text, "of not ") || strings.Contains(text, "probability") && strings.Contains(text, " not ") {
		return true
	}
	text += " "
	for _, sep := range []string{",", ";", ":", "=", ".", " and ", " but ", " so ", " is ", " are ", " was ", " were ", " then ", " that ", " which "} {
		text = text[strings.LastIndex(text, sep)+1:]
	}
	for _, word := range strings.Fields(text) {
		switch strings.ReplaceAll(word, "’", "'") {
		case "not", "never", "cannot", "no", "nor", "neither":
			return true
		}
		if Ends(word, "n't", "n’t") {
			return true
		}
	}
	return false
}

// After returns the words at the start of text that change the value before them, as in
// "5 less than" and "5 is wrong", or "". A unit may come first.
func After(text string) string {
	text = strings.ToLower(text[:min(len(text), 60)])
	rest := strings.TrimLeft(text, " $*)\\~")
	if at := max(strings.Index(rest, "±"), strings.Index(rest, "+/-")); at >= 0 && at < 24 && !strings.ContainsAny(rest[:at], "0123456789.,;") {
		return "between"
	}
	for _, words := range []string{"but they are wrong", "but that is wrong", "but this is wrong", "but it is wrong", "which is wrong", "which is incorrect", "give or take", "would be mistaken", "are mistaken", "is mistaken", "would be wrong"} {
		if at := strings.Index(rest, words); at >= 0 && !strings.ContainsAny(rest[:at], "0123456789.;") {
			return "is not"
		}
	}
	fields := strings.Fields(strings.NewReplacer(",", " , ", ".", " . ", ";", " ; ", "(", " ( ", "*", " ", "$", " ").Replace(rest))
	for i := 0; i < min(len(fields), 3); i++ {
		next := func(k int) string {
			if i+k < len(fields) {
				return fields[i+k]
			}
			return ""
		}
		f := fields[i]
		switch {
		case strings.ContainsAny(f, ",.;(") || f[0] >= '0' && f[0] <= '9':
			return ""
		case i == 0 && (f == "of" || f == "to") && next(1) != "" && (expr.DigitAt(next(1), 0) || next(1)[0] == '\\'):
			return "times"
		case f == "and" || f == "in" && next(1) != "each" || f == "for" || f == "of" && i > 0 || f == "with" || f == "because" || f == "since" || f == "to":
			return ""
		case next(1) == "than" && (strings.HasSuffix(f, "er") || f == "more" || f == "less"):
			return f + " than"
		case i == 0 && (f == "more" || f == "less" || f == "fewer") && next(2) == "than":
			return f + " than"
		case i > 0 && next(1) == "not" && (f == "are" || f == "is" || f == "do" || f == "did" || f == "does" || f == "were" || f == "was"):
			return "are not"
		case i == 0 && f == "does" && next(1) == "not":
			return "is not"
		case f == "short" && next(1) == "of", f == "below" && next(1) == "zero", f == "too" && i > 0, f == "shy" && next(1) == "of":
			return f + " " + next(1)
		case i == 0 && (f == "per" && (next(1) == "cent" || strings.HasPrefix(next(1), "cent"))):
			return "percent"
		case (f == "is" || f == "was" || f == "are" || f == "would" || f == "cannot") && (i == 0 || next(1) != "not") && denial(next(1), next(2)) || f == "isn't":
			return "is not"
		case i < 2 && (f == "ago" || f == "off" && (next(1) == "the" || next(1) == "of") || f == "fails"):
			return f
		case i < 2 && (f == "in" || f == "for") && next(1) == "each":
			return "each"
		case i < 2 && (f == "north" || f == "south" || f == "east" || f == "west"):
			return f
		case f == "if" && (slices.Contains(fields[i:], "were") || slices.Contains(fields[i:], "had") || slices.Contains(fields[i:], "not")):
			return f
		case (f == "increased" || f == "decreased" || f == "reduced" || f == "multiplied" || f == "divided") && next(1) == "by":
			return "times"
		case i == 0 && (f == "minus" || f == "plus" || f == "times" && next(1) != "" && expr.DigitAt(next(1), 0) || f == "squared" || f == "cubed" || f == "factorial" || f == "unless"):
			return f
		}
	}
	return ""
}

// denial reports whether the words after a verb deny a value.
func denial(first, second string) bool {
	switch first {
	case "a", "an", "the":
		switch second {
		case "wrong", "incorrect", "false", "upper", "lower", "mistake":
			return true
		}
	case "not", "wrong", "incorrect", "false", "too", "mistaken", "impossible", "close", "rejected", "extraneous", "invalid", "never", "unlikely":
		return true
	}
	return first == "be" && (second == "wrong" || second == "incorrect" || second == "too")
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

// emphatic returns the double negations that mean exactly.
func emphatic() []string {
	return []string{"nothing other than", "none other than", "no other than", "nothing but", "no more and no less than"}
}

// WithoutEmphasis returns s without double negations.
func WithoutEmphasis(s string) string {
	for _, phrase := range emphatic() {
		s = strings.ReplaceAll(s, phrase+" ", "")
	}
	return s
}
