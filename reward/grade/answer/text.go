package answer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/question"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// sameWords compares answers in words. Besides the wanted words, a response may name what
// they answer and comment on it: "The day is Friday", "Evelyn can win", "even, since 2
// divides it". It may neither deny them nor list others.
func sameWords(q *question.Question, w, g string) bool {
	w, g = markup.Bare(w), strings.Replace(markup.Bare(g), "none other than ", "", 1)
	if at := strings.Index(g, " for all "); at > 0 && len(g)-at < 24 {
		g = g[:at]
	}
	if prose := words.IsProse(w); prose && strings.EqualFold(
		w, strings.TrimSuffix(strings.TrimSuffix(g, " does"), " did")) {
		return true // a name such as Will, which words.Of drops as filler
	} else if !prose && !strings.ContainsAny(w, "^_/\\ 0123456789") && strings.EqualFold(w, g) {
		return !q.Asks("formula", "symbol") // Co is not CO
	}
	a, b := words.Of(w), words.Of(g)
	if len(a) == 0 || len(b) == 0 || !words.IsProse(w) && (len(a) != 1 || a[0] != "no") {
		return false
	}
	switch {
	case slices.Equal(a, b), words.IsDate(a) && words.IsDate(b) && a[0] == b[1] && a[1] == b[0],
		words.IsNothing(a) && (words.IsNothing(b) || words.EndsInNothing(b)):
		return true
	case len(g) > maxSentence, len(a) > 3 && count(b, a[0]) > count(a, a[0]): // said twice
		return false
	}
	if len(a) == 1 && slices.ContainsFunc(b, func(word string) bool {
		return words.Rival([]string{a[0]}, word) && words.OneOf(a[0], "true", "false")
	}) {
		return false
	}
	if len(a) == 1 && a[0] == "no" && affirms(q, b) {
		return false
	}
	if len(a) == 1 && (a[0] == "yes" || a[0] == "no") { // "No, it diverges"
		opposite := map[string]string{"yes": "no", "no": "yes"}[a[0]]
		return b[0] == a[0] && len(b) > 1 && !slices.Contains(b, opposite) &&
			strings.ContainsAny(g[:min(len(g), 5)], ",.;") &&
			(a[0] == "no" || q.Asks(" not ", "n't") || !words.HasNegation(g))
	}
	if len(a) == 1 && a[0] == "neither" && slices.Contains(b, "nor") {
		return slices.Contains(b, a[0])
	}
	text := g
	if !strings.ContainsAny(w, ",;:") {
		text = words.Uncommented(g)
		if retracts(q, a, g[len(text):]) {
			return false
		}
	}
	if slices.Equal(a, words.Of(text)) && !words.Possessive(a, g) {
		return true
	}
	for _, verb := range []string{" is ", " are ", " was ", ": ", " be ", " gives ", " get ", " got ",
		" really ", " by ",
		" that ", " namely ", " named ", " called ", " belongs to ", " turns ", " makes it ", " becomes ", " remains ",
		" moves ", " goes ", " points ", " it's ", ", "} {
		head, tail, ok := words.CutLast(words.Unbracketed(g), verb)
		lower := strings.ToLower(head)
		last := lower[strings.LastIndexByte(lower, ' ')+1:]
		introduces := verb != ", " || strings.HasSuffix(head, "day") && !words.Rival(a, last) ||
			strings.HasSuffix(lower, "hence")
		if ok && introduces && len(strings.Fields(head)) <= maxLead && !words.Negated(head, a) &&
			!strings.HasSuffix(head, "followed") && saysOnly(q, a, strings.Count(w, ","), words.Uncommented(tail)) {
			return true
		}
	}
	return saysOnly(q, a, strings.Count(w, ","), text)
}

// count returns how often a word is in a list.
func count(list []string, word string) int {
	return strings.Count(" "+strings.Join(list, " ")+" ", " "+word+" ")
}

// affirms reports whether the words after "no" say what the question asks about: "No, it is prime".
func affirms(q *question.Question, b []string) bool {
	if q.Text == "" || len(b) < 2 || words.HasNegation(strings.Join(b[1:], " ")) {
		return false
	}
	return !slices.ContainsFunc(b[1:], func(word string) bool {
		return !q.Has(word) && word != "this" && word != "number"
	})
}

// saysOnly reports whether text has the words a once and wantedCommas commas, and besides them only words
// of the question and others that say nothing more.
func saysOnly(q *question.Question, a []string, wantedCommas int, text string) bool {
	const (
		conclusions expr.Names = "therefore thus hence so finally"
		fillers     expr.Names = `
			named called day month facing does did can on in at one correct right answer choice option number operation
			solution solutions roots ones person always exactly to say there here`
		fillersAfter expr.Names = "for all x everywhere of has" // if the question has them
	)
	if head, rest, ok := strings.Cut(text, ","); ok && conclusions.Has(strings.ToLower(strings.TrimSpace(head))) {
		text = rest
	}
	b := words.Of(text)
	for len(b) > 0 && conclusions.Has(b[0]) {
		b = b[1:]
	}
	at := -1
	for i := 0; i+len(a) <= len(b); i++ {
		if slices.Equal(b[i:i+len(a)], a) {
			if at >= 0 {
				return false
			}
			at = i
		}
	}
	if at < 0 || len(b) > maxLead || strings.ContainsAny(text, "<>≤≥≠|&\\/") ||
		strings.Count(text, ",") != wantedCommas || words.Possessive(a, text) {
		return false
	}
	if extra := len(b) - len(a); q.Text != "" && extra > len(a)+3 {
		return false
	}
	names := map[string]bool{} // that the text capitalizes
	for _, f := range words.Split(text, "") {
		if first, _ := utf8.DecodeRuneInString(f); unicode.IsUpper(first) {
			names[strings.ToLower(f)] = true
		}
	}
	if words.Denied(strings.Join(b, " "), a) {
		return false
	}
	for i, word := range b {
		switch {
		case i >= at && i < at+len(a), fillers.Has(word), i > at && fillersAfter.Has(word) && q.Has(word):
		case slices.Contains(a, word), words.Rival(a, word), q.Offers(word), names[word] && i > 0,
			q.Text != "" && !q.Has(word), word[0] >= '0' && word[0] <= '9',
			q.Text == "" && i == at+len(a) && !words.IsVerb(word) && len(b) > len(a)+1:
			return false
		}
	}
	return true
}

// retracts reports whether a comment takes an answer back or names another: "(not)", "(no
// if it is slanted)", ", the sum is odd".
func retracts(q *question.Question, a []string, comment string) bool {
	const denials expr.Names = "not no false wrong or if maybe"
	inside := strings.HasPrefix(strings.TrimSpace(comment), "(")
	for i, word := range words.Of(comment) {
		other := !slices.Contains(a, word) && (words.Rival(a, word) || q.Offers(word))
		if word == "wrong" || word == "incorrect" || inside && i == 0 && (denials.Has(word) || other) ||
			i > 0 && other && strings.Contains(strings.ToLower(comment), " is "+word) {
			return true
		}
	}
	return false
}

// The bounds on a sentence that states an answer in words: its bytes, and the words
// before the answer.
const (
	maxSentence = 240
	maxLead     = 16
)
