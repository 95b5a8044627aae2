package words

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// Before returns what changes the value after text: the phrase that ends text, such as "more than" and
// "half of", or a short form of it, "times" or "not". It returns "" if nothing does.
func Before(text string) string {
	text = strings.ToLower(text)
	if strings.HasSuffix(text, "~~") {
		return "not" // struck out
	}
	text = strings.TrimRight(text, " $*(\\~")
	if head, ok := strings.CutSuffix(text, " of"); ok {
		// 1/3 of
		if head = strings.TrimRight(head, " "); expr.DigitAt(head, len(head)-1) || strings.HasSuffix(head, "}") {
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
		if word == "up to" && Ends(strings.TrimRight(head, " "), "add", "adds", "adding", "comes", "round", "rounds",
			"rounded", "rounding", "sums") {
			return ""
		}
		return strings.ReplaceAll(word, "'", "")
	}
	if denied(text) {
		return "not"
	}
	return ""
}

// changing returns the phrases that change the value after them.
func changing() []string {
	return []string{
		// Phrases that compare the value with another one, or bound it.
		"more than", "less than", "fewer than", "greater than", "larger than", "smaller than", "bigger than",
		"higher than", "lower than", "at least", "at most",
		"under", "below", "above", "up to", "almost", "nearly", "exceeding", "exceeds", "short of", "between",
		"nowhere near", "not near", "close to", "near", "far from",
		// Phrases that deny it.
		"except", "excluding", "not", "never", "can't be", "cannot be", "isn't", "wouldn't be", "anything but",
		"all but", "instead of", "other than", "else than",
		"different from", "unlike", "not necessarily", "not equal to", "not equal",
		// Phrases that compute with it.
		"half", "half of", "twice", "double", "triple", "thrice", "two times", "three times", "four times",
		"five times", "six times", "ten times", "third of", "quarter of",
		"multiple of", "power of", "to the power", "factor of", "divisor of", "divisible by", "complement of",
		"supplement of", "opposite of", "negative of", "inverse of", "reciprocal of",
		"cube of", "square of", "cube root of", "square root of", "root of", "logarithm of", "factorial of",
		"derivative of", "loss of", "minus", "divided by",
		"grown by", "increased by", "decreased by", "risen by", "fallen by", "dropped by", "right after",
		"right before", "just after", "just before", "comes after", "comes before", "rises by", "falls by",
		"increases by", "decreases by", "grows by", "shrinks by", "drops by",
		// Phrases that name a part of it, or a neighbour.
		"starts with", "begins with", "ends in", "ends with", "integer after", "integer before", "number after",
		"number before",
	}
}

// emphatic returns the double negations that mean "exactly".
func emphatic() []string {
	return []string{"don't doubt", "do not doubt", "safe to claim", "nothing other than", "none other than",
		"no other than", "nothing but", "no more and no less than", "with no doubt", "without doubt",
		"without a doubt", "no doubt"}
}

// WithoutEmphasis returns s without double negations.
func WithoutEmphasis(s string) string {
	for _, phrase := range emphatic() {
		s = strings.ReplaceAll(s, phrase+" ", "")
	}
	return s
}
