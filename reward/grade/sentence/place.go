package sentence

import (
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// place is an offset in a sentence. The words around it decide what is written there.
type place struct {
	text string
	at   int
}

// before returns the n bytes before p, or fewer.
func (p place) before(n int) string { return p.text[max(0, p.at-n):p.at] }

// after returns the n bytes from p on, or fewer.
func (p place) after(n int) string { return p.text[p.at:min(len(p.text), p.at+n)] }

// measure returns the length of the compound measure at p, or 0.
func (p place) measure() int {
	s, i := p.text, p.at
	if i > 0 && (expr.LetterAt(s, i-1) || expr.DigitAt(s, i-1) || strings.IndexByte(".,-$/", s[i-1]) >= 0) || !expr.DigitAt(s, i) && !expr.LetterAt(s, i) && s[i] != '$' && s[i] != '\\' {
		return 0
	}
	return measure.Length(s[i:])
}

// base returns the base that the words at p give a number, as in "(base 8)" and "in
// base eight".
func (p place) base() string {
	rest := strings.ToLower(strings.TrimLeft(p.after(24), " *$()"))
	rest, ok := strings.CutPrefix(strings.TrimPrefix(rest, "in "), "base")
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '-' && rest[0] != '~' {
		return ""
	}
	return " base " + strings.Trim(words.First(strings.TrimLeft(rest, " -~")), ".,;:)*$")
}

// isGroup reports whether a bracket at p belongs to mathematics: it is a tuple, or an
// expression continues after it.
func (p place) isGroup() bool {
	n := expressionAt(p.text, p.at)
	if n == 0 {
		return false
	}
	run := p.after(n)
	return strings.Contains(run, ",") || !strings.HasSuffix(run, ")") || strings.Count(run, "(") > 1 || p.at == 0 || strings.HasSuffix(p.before(2), "**")
}

// isResult reports whether "=", "equals" or "rounds to" precedes p.
func (p place) isResult() bool {
	before := strings.TrimRight(strings.ToLower(p.before(24)), " $*")
	if words.Ends(before, "=", " equals") {
		return true
	}
	return strings.Contains(before, "round") && strings.HasSuffix(before, " to")
}

// magnitude returns the factor or base that the words after a number, such as million,
// give it.
func (p place) magnitude() string {
	if base := p.base(); base != "" && !strings.HasSuffix(p.before(1), "_") {
		return base
	}
	rest := strings.ToLower(p.after(10))
	for _, m := range []string{" thousand", " million", " billion", " trillion", " hundred", " dozen"} {
		if strings.HasPrefix(rest, m) {
			return m
		}
	}
	for _, m := range []string{" p.m", " pm", " a.m", " am"} {
		if strings.HasPrefix(rest, m) && !expr.LetterAt(rest, len(m)) {
			return p.after(len(m))
		}
	}
	if word := words.First(strings.TrimPrefix(p.after(16), " ")); word != "in" && (measure.IsUnit(strings.TrimRight(strings.Split(word, "/")[0], ".,)*")) || measure.Shape(strings.TrimRight(word, ".,)*")) != "") {
		return " " + strings.Trim(word, ".,)*")
	}
	return ""
}

// isMark reports whether the number from p up to hi is a list label or part of a word:
// "3. Add", "5-year-old", "2nd".
func (p place) isMark(hi int) bool {
	t, lo := p.text, p.at
	before := strings.Trim(t[:lo], " *#\n")
	if before == "" && hi < len(t) && (t[hi-1] == '.' || t[hi] == '.' || t[hi] == ')') && strings.TrimSpace(t[hi+1:]) != "" {
		return true
	}
	if rest, ok := strings.CutPrefix(t[hi:], " times "); ok && words.Begins(rest, "a ", "per ") { // 3 times a week
		return true
	}
	for _, ordinal := range []string{"st", "nd", "rd", "th"} {
		if strings.HasPrefix(t[hi:], ordinal) && !expr.LetterAt(t, hi+2) {
			return true
		}
	}
	if strings.HasSuffix(strings.TrimRight(t[:lo], "$ "), "which is") { // "which is 5 more than"
		word := words.First(t[hi:min(len(t), hi+20)])
		return word == "more" || word == "less" || word == "fewer" || word == "times"
	}
	return hi+1 < len(t) && t[hi] == '-' && expr.LetterAt(t, hi+1)
}

// isAside reports whether the text at p is about something other than the sentence's
// subject: the nearest word before it, not counting articles and the like, is a
// preposition.
func (p place) isAside() bool {
	before := p.before(60)
	if words.Ends(strings.TrimRight(before, " $*"), "=", " given by") {
		return false
	}
	if k := max(strings.LastIndex(before, " than "), strings.LastIndex(before, "as many as "), strings.LastIndex(before, "as much as ")); k >= 0 && !strings.ContainsAny(before[k:], ",=:;") && !words.Contains(before[k:], " are ", " is ") {
		return true
	}
	if k := max(strings.LastIndex(before, " from "), strings.LastIndex(before, "times as ")); k >= 0 && !strings.ContainsAny(before[k:], ",=:;") && words.Contains(before[k:], " to ", " as ") {
		return true
	}
	fields := strings.FieldsFunc(strings.ToLower(before), func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != ',' && r != '=' && r != ':' })
	for k := len(fields) - 1; k >= max(0, len(fields)-4); k-- {
		f := fields[k]
		if strings.ContainsAny(f, ",=:") && f != fields[len(fields)-1] || strings.TrimRight(f, ",=:") == "" {
			return false
		}
		f = strings.TrimRight(f, ",=:")
		if slices.Contains(skipped(), f) || words.Ends(f, "ing", "'s") {
			continue
		}
		switch {
		case f == "total" || f == "all" && k == len(fields)-1:
			return false
		case f == "of" && isShare(before):
			return true
		case f == "of":
			return k < len(fields)-1 || k > 0 && words.OneOf(fields[k-1], "each", "end", "out", "all", "both", "any", "most", "some", "rest", "one", "every")
		}
		return slices.Contains(prepositions(), f)
	}
	return false
}

// isShare reports whether text ends in a fraction of something: "1/8 of", "a third of
// the".
func isShare(text string) bool {
	head := strings.TrimRight(text[:max(0, strings.LastIndex(text, "of"), strings.LastIndex(text, "Of"))], " $*")
	if head == "" {
		return false
	}
	word := strings.ToLower(head[strings.LastIndexAny(head, " $*")+1:])
	return strings.HasSuffix(word, "%") || expr.DigitAt(word, 0) && expr.DigitAt(word, len(word)-1) ||
		words.OneOf(word, "half", "third", "thirds", "quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "percent")
}

func skipped() []string {
	return []string{"the", "a", "an", "his", "her", "their", "its", "these", "those", "only", "about", "next", "first", "last", "other",
		"just", "exactly", "approximately", "additional", "extra", "remaining", "original", "away", "up", "out", "off", "back"}
}

func prepositions() []string {
	return []string{"for", "in", "from", "after", "with", "at", "by", "per", "every", "each", "on", "within", "during", "over", "among", "between",
		"if", "when", "since", "because", "than", "step", "day", "week", "year", "month", "part", "case", "question", "problem", "all", "both",
		"using", "through", "until", "across", "into", "versus", "against", "base", "above", "below", "beyond", "past", "modulo", "mod", "when", "where", "given", "without", "despite", "not"}
}

// isAim reports whether the text at p belongs to an infinitive of purpose: "to make 1
// robe", but not "has to pay 5", "adds 5 to this" or "to get 5".
func (p place) isAim() bool {
	fields := strings.Fields(strings.ToLower(p.before(60)))
	for k := len(fields) - 2; k >= max(0, len(fields)-7); k-- {
		if strings.ContainsAny(fields[k], ",;:=0123456789") {
			return false
		}
		if fields[k] != "to" {
			continue
		}
		if words.OneOf(fields[k+1], "this", "that", "the", "it", "get", "give", "obtain", "find", "be", "a", "his", "her", "their") {
			return false
		}
		return k == 0 || !words.OneOf(fields[k-1], "needs", "need", "needed", "has", "have", "had", "having", "able", "going", "equal", "out", "comes", "up",
			"amounts", "want", "wants", "wanted", "required", "expected", "likely", "decides", "decided", "manages", "managed")
	}
	return false
}
