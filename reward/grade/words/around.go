package words

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Before returns the words at the end of text that change the value after them, as in
// "more than" and "half of", or "".
func Before(text string) string {
	text = strings.ToLower(text)
	if strings.HasSuffix(text, "~~") {
		return "not" // struck out
	}
	text = strings.TrimRight(text, " $*(\\~")
	if head, ok := strings.CutSuffix(text, " of"); ok {
		if head = strings.TrimRight(head, " "); expr.DigitAt(head, len(head)-1) || strings.HasSuffix(head, "}") { // 1/3 of
			return "times"
		}
	}
	for _, sign := range []string{">", "<", "≥", "≤", "≠"} {
		if Ends(text, " "+sign, "`"+sign) {
			return sign
		}
	}
	if strings.HasSuffix(text, "!=") {
		return "!="
	}
	if Ends(text, emphatic()...) {
		return ""
	}
	for _, word := range changing() {
		head, ok := strings.CutSuffix(text, word)
		if !ok || head != "" && expr.LetterAt(head, len(head)-1) {
			continue
		}
		if word == "up to" && Ends(strings.TrimRight(head, " "), "add", "adds", "adding", "comes", "round", "rounds", "rounded", "rounding", "sums") {
			return ""
		}
		return strings.ReplaceAll(word, "'", "")
	}
	if Negates(text) {
		return "not"
	}
	return ""
}

// changing returns the phrases that change the value after them.
func changing() []string {
	return []string{
		// They compare it with another value, or bound it.
		"more than", "less than", "fewer than", "greater than", "larger than", "smaller than", "bigger than", "higher than", "lower than", "at least", "at most",
		"under", "below", "above", "up to", "almost", "nearly", "exceeding", "exceeds", "short of", "between", "nowhere near", "not near", "close to", "near", "far from",
		// They deny it.
		"except", "excluding", "not", "never", "can't be", "cannot be", "isn't", "wouldn't be", "anything but", "all but", "instead of", "other than", "else than",
		"different from", "unlike", "not necessarily", "not equal to", "not equal",
		// They compute with it.
		"half", "half of", "twice", "double", "triple", "thrice", "two times", "three times", "four times", "five times", "six times", "ten times", "third of", "quarter of",
		"multiple of", "power of", "to the power", "factor of", "divisor of", "divisible by", "complement of", "supplement of", "opposite of", "negative of", "inverse of", "reciprocal of",
		"cube of", "square of", "cube root of", "square root of", "root of", "logarithm of", "factorial of", "derivative of", "loss of", "minus", "divided by",
		"grown by", "increased by", "decreased by", "risen by", "fallen by", "dropped by", "right after", "right before", "just after", "just before", "comes after", "comes before", "rises by", "falls by", "increases by", "decreases by", "grows by", "shrinks by", "drops by",
		// They name a part of it, or a neighbour.
		"starts with", "begins with", "ends in", "ends with", "integer after", "integer before", "number after", "number before",
	}
}

// refuting returns the phrases that call the value before them wrong.
func refuting() []string {
	return []string{"but they are wrong", "but that is wrong", "but this is wrong", "but it is wrong", "which is wrong", "which is incorrect", "give or take",
		"would be mistaken", "are mistaken", "is mistaken", "would be wrong"}
}

// After returns the words at the start of text that change the value before them, as in
// "5 less than" and "5 is wrong", or "". A unit may come first.
func After(text string) string {
	text = strings.ToLower(text[:min(len(text), 60)])
	rest := strings.TrimLeft(text, " $*)\\~")
	if at := max(strings.Index(rest, "±"), strings.Index(rest, "+/-")); at >= 0 && at < 24 && !strings.ContainsAny(rest[:at], "0123456789.,;") {
		return "between"
	}
	for _, words := range refuting() {
		if at := strings.Index(rest, words); at >= 0 && !strings.ContainsAny(rest[:at], "0123456789.;") {
			return "is not"
		}
	}
	if strings.ContainsAny(rest, ",.;(*$") {
		rest = strings.NewReplacer(",", " , ", ".", " . ", ";", " ; ", "(", " ( ", "*", " ", "$", " ").Replace(rest)
	}
	fields := strings.Fields(rest)
	for i := 0; i < min(len(fields), 3); i++ {
		next := func(k int) string {
			if i+k < len(fields) {
				return fields[i+k]
			}
			return ""
		}
		f := fields[i]
		switch {
		case strings.ContainsAny(f, ",.;(") || expr.DigitAt(f, 0):
			return ""
		case i < 2 && f == "in" && next(1) == "each":
			return "each"
		case i == 0 && OneOf(f, "of", "to") && (expr.DigitAt(next(1), 0) || strings.HasPrefix(next(1), `\`)):
			return "times"
		case OneOf(f, "and", "for", "with", "because", "since", "to") || f == "in" && next(1) != "each" || f == "of" && i > 0:
			return ""
		case next(1) == "than" && (strings.HasSuffix(f, "er") || f == "more" || f == "less"), i == 0 && next(2) == "than" && OneOf(f, "more", "less", "fewer"):
			return f + " than"
		case i > 0 && next(1) == "not" && OneOf(f, "are", "is", "do", "did", "does", "were", "was"):
			return "are not"
		case i == 0 && f == "does" && next(1) == "not", f == "isn't":
			return "is not"
		case next(1) == "of" && OneOf(f, "short", "shy"), f == "below" && next(1) == "zero", f == "too" && i > 0:
			return f + " " + next(1)
		case i == 0 && f == "per" && strings.HasPrefix(next(1), "cent"):
			return "percent"
		case OneOf(f, "is", "was", "are", "would", "cannot") && (i == 0 || next(1) != "not") && denial(next(1), next(2)):
			return "is not"
		case i < 2 && (OneOf(f, "ago", "fails", "north", "south", "east", "west") || f == "off" && OneOf(next(1), "the", "of")):
			return f
		case f == "if" && slices.ContainsFunc(fields[i:], func(word string) bool { return OneOf(word, "were", "had", "not") }):
			return f
		case next(1) == "by" && OneOf(f, "increased", "decreased", "reduced", "multiplied", "divided"):
			return "times"
		case i == 0 && (OneOf(f, "minus", "plus", "squared", "cubed", "factorial", "unless") || f == "times" && expr.DigitAt(next(1), 0)):
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

// emphatic returns the double negations that mean exactly.
func emphatic() []string {
	return []string{"don't doubt", "do not doubt", "safe to claim", "nothing other than", "none other than", "no other than", "nothing but", "no more and no less than", "with no doubt", "without doubt", "without a doubt", "no doubt"}
}

// WithoutEmphasis returns s without double negations.
func WithoutEmphasis(s string) string {
	for _, phrase := range emphatic() {
		s = strings.ReplaceAll(s, phrase+" ", "")
	}
	return s
}
