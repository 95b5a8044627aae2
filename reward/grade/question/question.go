// Package question reads what a question says about its answer: words, formulas, the unit,
// the name and the form that it asks for, and the choices that it offers.
package question

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Question is a question's text and what it says. The zero Question says nothing. It is not
// safe for concurrent use.
type Question struct {
	Text string

	lower   string
	last    string          // the last sentence in lower case, or its last maxLast bytes
	words   map[string]bool // in the singular
	offered map[string]bool // words that are alternatives

	// Results that are computed on first use.
	found    map[string]bool // texts that were looked up in lower
	formulas *Formulas
	target   *expr.Node
	aimed    bool // target is computed
	asked    *measure.Unit
	per      []measure.Unit // the units after "per" or a slash
	units    map[string]measure.Unit
}

// The bounds on what is read: the bytes of the last sentence, and the number of texts whose
// presence in the question is remembered.
const (
	maxLast  = 4096
	maxFound = 1024
)

// New returns a question.
func New(text string) *Question {
	q := &Question{Text: text, lower: strings.ToLower(text), words: map[string]bool{}}
	q.last = lastSentence(q.lower)
	for _, word := range words.Split(q.lower, "") {
		q.words[words.Singular(word)] = true
	}
	q.offered = alternatives(q.lower)
	return q
}

// lastSentence returns the last sentence of a question in lower case, and what follows it if that
// only says how to write the answer: "Give a fraction."
func lastSentence(lower string) string {
	text := strings.TrimRight(lower, " .?!\n")
	text = text[max(0, len(text)-maxLast):]
	for end := len(text); ; {
		at := max(strings.LastIndex(text[:end], ". "), strings.LastIndex(text[:end], "? "),
			strings.LastIndex(text[:end], "\n"), 0)
		begin := strings.TrimLeft(text[at:], ".?\n ")
		if at == 0 || !words.Begins(begin, "give ", "express ", "answer ", "write your", "write the answer", "round ",
			"enter ", "leave ", "assume ", "state ", "submit ", "put ", "provide ", "simplify your", "show ", "use ",
			"your answer", "please ", "do not ", "choose one", "present ", "let's think", "think step") ||
			!strings.HasPrefix(text[at:], "?") && !strings.HasPrefix(text[at:], "\n") {
			return text[at:]
		}
		end = at
	}
}

// wanted returns the last sentence up to the first of its conditions, such as "with radius 4 cm".
func (q *Question) wanted() string {
	head := q.last
	for _, word := range []string{" with ", " whose ", " if ", " when ", " given ", " having ", " that has ",
		" of radius ",
		" of diameter ", " of width ", " of height ", " of sides "} {
		head, _, _ = strings.Cut(head, word)
	}
	return head
}

// Asks reports whether the question contains one of the texts, which are in lower case.
// It remembers what it has looked up.
func (q *Question) Asks(texts ...string) bool {
	if q.found == nil {
		q.found = map[string]bool{}
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		found, known := q.found[text]
		if !known {
			found = strings.Contains(q.lower, text)
		}
		if !known && len(q.found) < maxFound {
			q.found[text] = found
		}
		return found
	})
}

// Last returns the last sentence of the question in lower case.
func (q *Question) Last() string { return q.last }

// From returns the question in lower case from the last occurrence of a phrase on, or "".
func (q *Question) From(phrase string) string {
	if phrase == "" {
		return q.lower
	}
	if at := strings.LastIndex(q.lower, phrase); at >= 0 {
		return q.lower[at:]
	}
	return ""
}

// LastHas reports whether the last sentence contains one of the texts, which are in lower
// case.
func (q *Question) LastHas(texts ...string) bool { return words.Contains(q.last, texts...) }

// Means reports whether a word names what the question asks for in other words: "age" for "how old".
func (q *Question) Means(word string) bool {
	for _, row := range [][]string{{"how old", "age", "aged"}, {"how far", "distance"}, {"how long", "length", "time",
		"duration"}, {"how tall", "height"}, {"how high", "height"}, {"how deep", "depth"}, {"how wide", "width"},
		{"how fast", "speed", "rate"}, {"how heavy", "weight"}, {"how much does", "weight", "price"},
		{"how big", "size",
			"area"}, {"how much money", "money", "profit"}} {
		if slices.Contains(row[1:], word) && q.LastHas(row[0]) {
			return true
		}
	}
	return false
}

// Gives reports whether the last sentence has a number of what a word counts: "for 240 pages".
func (q *Question) Gives(word string) bool {
	before, _, ok := strings.Cut(q.last, " "+word)
	return ok && strings.HasSuffix(word, "s") && before != "" && before[len(before)-1] >= '0' &&
		before[len(before)-1] <= '9'
}

// wantedHas is LastHas for what the last sentence asks for, without what it gives.
func (q *Question) wantedHas(texts ...string) bool { return words.Contains(q.wanted(), texts...) }

// AsksShare reports whether a percentage may answer the question.
func (q *Question) AsksShare() bool {
	last := q.Last()
	if words.Contains(last, "in dollars", "in euros", "in cents", "how much money") {
		return false
	}
	for _, word := range []string{"percent", "probability", "chance", "likel", "odds", "%"} {
		if strings.Contains(last, word) {
			return !words.Contains(last, "what is "+word, "% of ") || strings.Contains(last, "percent")
		}
	}
	return q.Asks("percent", "%") && !q.Asks("how many", "how much")
}

// asksRate reports whether the question asks for a rate.
func (q *Question) asksRate() bool {
	return q.LastHas("speed", "rate", "/", "mph", "average", "fast", "per ", "pace", "each", "every", "density", "dail",
		"week", "month", "hourly", "day")
}

// AsksPerUnit reports whether the last sentence asks for something per unit in words.
func (q *Question) AsksPerUnit() bool {
	return q.LastHas(" per ", "each", "every", " one ", "average", "rate", "speed", "pace", "density", "/",
		"mph", "hourly",
		"daily", "how fast", "unit price")
}

// AsksSlope reports whether the question is about a derivative.
func (q *Question) AsksSlope() bool {
	return q.Asks("derivative") && !q.Asks("antiderivative") ||
		q.Asks("differentiate", "slope", "rate of change", "tangent", "prime", "f'", `\frac{d}{d`, "d/dx", "d/dt")
}

// Has reports whether a word, or its plural, is in the question.
func (q *Question) Has(word string) bool {
	return q.words[words.Singular(word)] || q.words[words.Singular(strings.TrimSuffix(word, "s"))]
}

// Places returns the number of decimal places to which the question asks to round. ok is false if it asks
// for none.
func (q *Question) Places() (places int, ok bool) {
	for places, names := range [][]string{nil, {"nearest tenth", "one decimal place", "1 decimal place"},
		{"nearest hundredth", "two decimal places", "2 decimal places", "nearest cent"},
		{"nearest thousandth", "three decimal places", "3 decimal places"}, {"nearest ten-thousandth",
			"four decimal places", "4 decimal places"}} {
		if q.Asks(names...) {
			return places, true
		}
	}
	return 0, false
}

// Transforms reports whether the question asks for another form of an expression.
func (q *Question) Transforms() bool {
	return q.Asks("simplif", "expand", "factor", "rationali", "express", "writ", "fraction", "as a decimal", "convert",
		"in the form", "in terms of",
		"reduce", "partial fraction", "complete the square", "completing the square", "multiply out", "solve for",
		"standard form",
		"slope-intercept", "vertex form", "lowest terms", "simplest", "equivalent", "cancel")
}

// Reduces reports whether the question asks for lowest terms or simplest roots.
func (q *Question) Reduces() bool {
	return q.Asks("lowest terms", "simpl", "reduce", "common fraction", "m+n", "relatively prime")
}

// acts reports whether a verb follows a word, which is no pronoun or the like: "Maria has".
func acts(word, after string) bool {
	if words.OneOf(word, "this", "that", "there", "what", "who", "which", "each", "every", "one", "everyone", "here",
		"where", "how", "when", "why", "the", "she", "they", "its", "all", "both", "half") {
		return false
	}
	next, spaced := strings.CutPrefix(after, " ")
	verb := words.First(next[:min(len(next), 24)])
	return strings.HasPrefix(after, "'s ") || spaced && (words.OneOf(verb, "has", "had", "is", "was", "and", "bought",
		"sold", "ate", "ran", "made", "read", "found", "got") || words.Ends(verb, "s", "ed") &&
		verb == strings.ToLower(verb))
}

// Positive reports whether the question says that the variable called name, or each variable,
// is positive.
func (q *Question) Positive(name string) bool {
	if q.Asks("positive real", "positive number", "positive integer", "positive variable", "nonnegative",
		"non-negative", "variables are positive", "for positive", "are positive", "is positive") {
		return true
	}
	name = strings.ToLower(strings.TrimPrefix(name, "\\"))
	return q.Asks(name+" > 0", name+">0", name+` \ge 0`, name+` \geq 0`, name+` \geqslant 0`, name+" >= 0",
		name+">=0", name+`\ge0`, name+`\geq0`, name+" ≥ 0", name+"≥0", "0 < "+name, "0<"+name, "positive "+name,
		"positive $"+name)
}

// Names reports whether a word, in lower case, is the name of someone or something that the
// question, but not its last sentence, mentions, and the last sentence names others.
func (q *Question) Names(word string) bool {
	return q.isName(word) && !strings.Contains(q.last, word) &&
		slices.ContainsFunc(words.Split(q.last, ""), q.isName)
}

// InitialOfOther reports whether a capital letter is the initial of a name that the question, but
// not its last sentence, mentions, and the last sentence has a name with another initial.
func (q *Question) InitialOfOther(letter string) bool {
	if len(letter) != 1 || letter[0] < 'A' || letter[0] > 'Z' {
		return false
	}
	lower := strings.ToLower(letter)
	asked := slices.DeleteFunc(words.Split(q.last, ""), func(word string) bool { return !q.isName(word) })
	if len(asked) == 0 || slices.ContainsFunc(asked, func(word string) bool { return strings.HasPrefix(word, lower) }) {
		return false
	}
	for word := range q.words {
		if strings.HasPrefix(word, lower) && q.isName(word) {
			return true
		}
	}
	return false
}

// isName reports whether the question writes a word only with a capital letter, and not just
// at the start of a sentence.
func (q *Question) isName(word string) bool {
	if len(word) < 3 || word[0] < 'a' || word[0] > 'z' {
		return false
	}
	title := string(word[0]-'a'+'A') + word[1:]
	inside := false
	for rest := q.Text; ; {
		before, after, ok := strings.Cut(rest, title)
		if !ok {
			return inside && !strings.Contains(q.Text, word)
		}
		start := strings.TrimRight(before, " \n")
		inside = inside || start != "" && strings.IndexByte(".?!", start[len(start)-1]) < 0 && start != before ||
			acts(word, after)
		rest = after
	}
}

// maxOption bounds the text on each side of an "or" that is read, in bytes.
const maxOption = 512

// alternatives returns the words on each side of every " or " in a text, and the last words of the other
// items of a list that ends in one.
func alternatives(lower string) map[string]bool {
	found := map[string]bool{}
	for at := 0; ; {
		i := strings.Index(lower[at:], " or ")
		if i < 0 {
			return found
		}
		at += i
		begin := at + len(" or ")
		next := strings.Fields(lower[begin:min(len(lower), begin+maxOption)])
		if len(next) > 0 {
			found[strings.Trim(next[0], ".,?!;:\"'")] = true
			if len(next) > 1 && words.OneOf(next[0], "the", "a", "an") {
				found[strings.Trim(next[1], ".,?!;:\"'")] = true
			}
		}
		before := lower[max(0, at-maxOption):at]
		for range 6 {
			before = strings.TrimRight(before, " ,\"'")
			cut := strings.LastIndexAny(before, " ,\"'(")
			found[before[cut+1:]] = true
			comma := strings.LastIndexByte(before, ',')
			if comma < 0 || strings.ContainsAny(before[comma:], ".?!") || len(strings.Fields(before[comma:])) > 4 {
				break
			}
			before = before[:comma]
		}
		at = begin
	}
}

// Offers reports whether the question offers a word as an alternative: next to "or", or
// before a comma of a list that ends in "or".
func (q *Question) Offers(word string) bool { return q.offered[word] }

// Option returns the text of a choice that the question offers, or "".
func (q *Question) Option(letter byte) string {
	for _, form := range []string{"(%c)", "%c)", "%c.", "%c:"} {
		mark := strings.Replace(form, "%c", string(letter), 1)
		_, rest, ok := strings.Cut(q.Text, mark)
		if !ok {
			continue
		}
		next := strings.Replace(form, "%c", string(letter+1), 1)
		rest, _, _ = strings.Cut(rest, next)
		rest, _, _ = strings.Cut(rest, "\n")
		return strings.Trim(rest, " ,;.\\$")
	}
	return ""
}
