package answer

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// alters reports whether words around a value change what it says. It allows a comparison
// that the question asks for: "how many more".
func alters(q *question.Question, name string) bool {
	if !words.Alters(name) {
		return false
	}
	if strings.HasSuffix(name, "are not") && (q.Text == "" || q.LastHas("not", "n't", "without", "left", "remain", "fail", "miss", "other")) {
		return false
	}
	if slices.Contains(strings.Fields(name), "each") && !words.Alters(strings.ReplaceAll(name, "each", "")) && (q.LastHas("each", " per ", "every") || !q.LastHas("altogether", "in all", "total")) || strings.HasSuffix(name, "ago") && (q.Text == "" || q.Asks("ago", "born", "how long")) {
		return false
	}
	if q.Text == "" && strings.HasSuffix(name, " than") || name == "times" && q.Text == "" || strings.HasSuffix(name, "times") && q.Asks("many times") {
		return false
	}
	for _, way := range []string{"north", "south", "east", "west"} {
		if strings.Contains(name, way) && (q.Text == "" || strings.Contains(q.From("how "), way)) {
			return false
		}
	}
	for _, f := range strings.Fields(strings.ToLower(name)) {
		if words.Alters(f) && q.Asks("many "+f, "number of "+f) {
			return false
		}
	}
	if last := q.Last(); q.Text != "" {
		asked := true
		for _, f := range strings.Fields(strings.ToLower(name)) {
			compares := f == "than" || strings.HasSuffix(f, "er") || f == "more" || f == "less" || f == "short" || f == "over" || f == "above"
			asked = asked && (!words.Alters(f) && !compares || strings.Contains(last, f) && words.OneOf(f, "least", "most", "too", "many", "short", "over", "above", "under", "below", "times", "minus") ||
				compares && words.Contains(last, "than", "exceed", "above", "difference", "increase", "decrease", "compar", "more", "less", "farther", "short", "far "))
		}
		if asked {
			return false
		}
	}
	for _, f := range strings.Fields(strings.ToLower(name)) {
		if f == "than" || strings.HasSuffix(f, "er") || f == "more" || f == "less" {
			if f != "than" && strings.Contains(q.From("how m"), f) {
				return false
			}
		}
	}
	return true
}

// plain reports whether the words around a number say no more than the question: names,
// Units and words of the question.
func plain(q *question.Question, name string) bool {
	strange := 0
	for _, word := range words.Of(name) {
		if !q.Has(word) && !measure.IsUnit(word) && !words.OneOf(word, "therefore", "thus", "hence", "total", "in", "all", "altogether", "exactly", "of", "they", "have", "has", "he", "she", "there", "answer", "final",
			"we", "get", "equals", "units", "square", "cubic", "percent", "degrees", "this", "to", "at", "for", "by", "per", "value", "result", "only", "just", "now") {
			strange++
		}
	}
	return strange <= 2 || q.Text == "" && strange <= 4
}
