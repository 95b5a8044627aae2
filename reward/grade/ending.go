package grade

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// ends reports whether a text without a mark ends in the words of the reference answer, and
// its last sentence neither denies them nor has other candidates: "In order we have fig,
// lime, pear", "Most of it is made in the mitochondria".
func (t *Task) ends(text string) bool {
	gold := strings.ToLower(strings.TrimRight(t.gold, " ."))
	if !words.IsProse(gold) || strings.ContainsAny(gold, "\\0123456789") || len(gold) > maxLead || words.OneOf(gold, "yes", "no", "true", "false", "none", "neither", "both") {
		return false
	}
	if all := sentence.Split(text); len(all) > 0 {
		text = all[len(all)-1].Text
	}
	text = strings.TrimRight(strings.TrimSpace(text), " .!*\"'”")
	if t.namesOthers(text) {
		return false
	}
	text = strings.ToLower(text)
	head, ok := strings.CutSuffix(text, gold)
	if !ok || head == "" || !words.Ends(head, " ", "*", "\"", "'", "“") || len(head) > maxFinal/8 {
		return false
	}
	list := strings.Contains(gold, ", ")
	if list && strings.ContainsAny(head, ",;/&") || strings.ContainsAny(head, "?|/") || strings.Contains(head, gold) {
		return false
	}
	wanted := words.Of(gold)
	fields := strings.FieldsFunc(head, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
	for _, word := range fields {
		if words.Doubts(word) || words.Rival(wanted, word) || t.question.Offers(word) || words.OneOf(word, "or", "unlike", "instead", "rather", "followed", "first", "second", "far", "opposite", "said", "says", "thinks", "claims", "if") && !t.question.Has(word) {
			return false
		}
	}
	if words.Negated(head[strings.LastIndexAny(head, ",;:")+1:], wanted) || words.HasNegation(head) {
		return false
	}
	for k := len(fields) - 1; k >= 0; k-- {
		if word := fields[k]; !words.OneOf(word, "the", "a", "an", "his", "her", "its", "their") {
			return !words.OneOf(word, "than", "from", "before", "after", "with", "like", "of", "and", "nor", "except", "besides", "over", "against", "versus", "without", "beside", "behind", "but", "between", "about", "beat", "beats", "on", "near", "zero", "nowhere", "being")
		}
	}
	return list
}

// namesOthers reports whether a sentence has a name of the question that the reference answer,
// a name too, lacks.
func (t *Task) namesOthers(text string) bool {
	if !startsUpper(t.gold) {
		return false
	}
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if i > 0 && startsUpper(word) && len(word) > 2 && !strings.Contains(t.gold, word) && strings.Contains(t.question.Text, " "+word) {
			return true
		}
	}
	return false
}

func startsUpper(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	return unicode.IsUpper(first)
}
