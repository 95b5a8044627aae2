package words

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// The words that change what a value says. negating, altering and doubting share the words of untrue and
// guesses; beyond these, each list holds only its own.
const (
	negations expr.Names = "not no never neither nor cannot"
	untrue    expr.Names = `
	wrong incorrect incorrectly false falsely untrue mistaken mistakenly mistake invalid impossible`
	guesses expr.Names = `
	maybe perhaps possibly probably might guess guesses guessing suppose unless either whether`
	negating            = untrue + guesses + " hardly if doubt or fails fail lacks"
	denying  expr.Names = `
	and but could think assume instead rather followed except excluding without unlike than before after until from
	loses non anti far anything everything any every other rarely less least`
	altering = untrue + guesses + `
	isnt arent wasnt wouldnt cant but without except excluding instead else unlike different contradiction unknown
	fails if necessarily than below under above over beyond exceeds between near nearly almost far least most many
	too short off bound minus plus divided times double twice triple half third quarter squared cubed cube root
	factorial logarithm derivative mod modulo divisible multiple divisor factor complement supplement opposite
	inverse reciprocal close dozen hundred thousand million billion north south east west each every apiece ago
	after before starts begins ends loss rises falls increases decreases grows drops`
	doubting = untrue + guesses + `
	unlikely doubt doubtful hardly barely scarcely unsure uncertain supposedly allegedly apparently presumably
	pretend claim claims claimed alternative alternatives alternatively options pairs respectively otherwise chance
	candidate candidates shy slightly shortly almost nearly virtually roughly approx approximately about around
	strictly excluding contrary mislabeled misread misprint misprinted typo surprised disagree disagrees ruled
	eliminated rejected discarded extraneous unlike else or`
	comparing expr.Names = `
	older younger taller shorter longer bigger smaller larger heavier lighter faster slower higher lower cheaper
	farther further earlier later more less fewer greater deeper warmer colder wider ahead behind extra`
	scaling expr.Names = "hundred thousand million billion trillion"
)

// isNegation reports whether a word negates.
func isNegation(word string) bool { return negations.Has(word) || strings.HasSuffix(word, "n't") }

// negates reports whether a word negates or reverses what a sentence says, or makes it conditional.
func negates(word string) bool { return isNegation(word) || negating.Has(word) }

// denies reports whether a word negates what a sentence says, or compares it with something else.
func denies(word string) bool { return negates(word) || denying.Has(word) }

// alters reports whether a word negates a value, compares or computes with it, or gives it a
// direction or a scale.
func alters(word string) bool { return isNegation(word) || altering.Has(word) }

// Doubts reports whether a word doubts or bounds what a sentence says, attributes it to
// someone, or offers a choice: "allegedly", "almost", "or".
func Doubts(word string) bool { return doubting.Has(fold(word)) }

// Bends reports whether a word denies, doubts, bounds or computes with the value beside it.
func Bends(word string) bool {
	word = fold(word)
	return alters(word) || Doubts(word) || negates(word)
}

// Compares reports whether a word in lower case says that a value is a difference: "16 years older".
func Compares(word string) bool { return comparing.Has(word) }

// Scales reports whether a word multiplies the number before it, as in "2 million".
func Scales(word string) bool { return scaling.Has(word) }

// fold returns a word or text in lower case and with plain apostrophes.
func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "’", "'") }

// anyWord reports whether f holds for a word of text, folded.
func anyWord(text string, f func(word string) bool) bool {
	return slices.ContainsFunc(Split(fold(text), "'"), f)
}

// Negated reports whether a text has a negation or a condition that is not among the wanted words.
func Negated(text string, wanted []string) bool {
	return strings.Contains(fold(text), "opposite of") ||
		anyWord(text, func(word string) bool { return negates(word) && !slices.Contains(wanted, word) })
}

// Denied reports whether a text denies or doubts what it says, makes it conditional, or says it of
// something else. The wanted words do not count.
func Denied(text string, wanted []string) bool {
	return anyWord(text, func(word string) bool { return denies(word) && !slices.Contains(wanted, word) })
}

// Alters reports whether words around a value change what it says: "5 less than", "not 5".
func Alters(text string) bool { return anyWord(text, alters) }

// Hedges reports whether a comment on an answer denies or doubts it, or makes it conditional. A comment
// that negates something else, such as "never attained", does not.
func Hedges(comment string) bool {
	return anyWord(comment, func(word string) bool { return Doubts(word) || OneOf(word, "not", "no", "if", "could") })
}

// HasNegation reports whether a word of text negates.
func HasNegation(text string) bool { return anyWord(text, isNegation) }

// denied reports whether the clause that text, in lower case, ends in has a negation:
// "she does not have".
func denied(text string) bool {
	if strings.Contains(text, "of not ") || strings.Contains(text, "probability") && strings.Contains(text, " not ") {
		return true
	}
	text += " "
	for _, sep := range []string{",", ";", ":", "=", ".", " and ", " but ", " so ", " is ", " are ", " was ", " were ",
		" then ", " that ", " which ", " it's "} {
		text = text[strings.LastIndex(text, sep)+1:]
	}
	return HasNegation(text)
}
