package question

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// ChangedBy reports whether words around a value change what it says in a way that the question does
// not ask for, or add to the question. If it asks "how many more", the value may be "5 more".
func (q *Question) ChangedBy(name string) bool {
	return words.Alters(name) && !q.asksFor(name) || !q.plain(name)
}

// Bends reports whether a word next to a value denies, doubts, bounds or computes with it and the
// question does not ask for that: "twice", unless it asks how many are twice as old.
func (q *Question) Bends(word string) bool { return words.Bends(word) && !q.asksFor(word) }

// asksFor reports whether the question asks for the comparison, the direction or the rest that
// the words around a value name. Without a question, some of them may be meant.
func (q *Question) asksFor(name string) bool {
	fields := strings.Fields(strings.ToLower(name))
	if slices.Contains(fields, "each") && !words.Alters(strings.ReplaceAll(name, "each", "")) &&
		(q.LastHas("each", " per ", "every") || !q.LastHas("altogether", "in all", "total")) {
		return true
	}
	directions := []string{"north", "south", "east", "west"}
	if q.Text == "" {
		return name == "times" || words.Ends(name, "are not", "ago", " than") || words.Contains(name, directions...)
	}
	asked := func(way string) bool { return strings.Contains(name, way) && strings.Contains(q.From("how "), way) }
	counted := func(f string) bool {
		return words.Alters(f) && q.Asks("many "+f, "number of "+f) ||
			isComparative(f) && strings.Contains(q.From("how m"), f)
	}
	switch {
	case strings.HasSuffix(name, "are not") &&
		q.LastHas("not", "n't", "without", "left", "remain", "fail", "miss", "other"),
		strings.HasSuffix(name, "ago") && q.Asks("ago", "born", "how long"),
		slices.ContainsFunc(directions, asked), slices.ContainsFunc(fields, counted):
		return true
	}
	return !slices.ContainsFunc(fields, func(f string) bool { return !q.asksWord(f) })
}

// asksWord reports whether the last sentence of the question asks for the comparison that a
// word makes, or the word makes none.
func (q *Question) asksWord(word string) bool {
	const (
		changes expr.Names = "grows rises falls drops increases decreases"
		bounds  expr.Names = "least most too many short over above under below times minus"
	)
	compares := isComparative(word) || words.OneOf(word, "than", "short", "over", "above")
	if !words.Alters(word) && !compares || q.LastHas("by how", "by what") && changes.Has(word) ||
		q.LastHas(word) && bounds.Has(word) {
		return true
	}
	return compares && q.LastHas("than", "exceed", "above", "difference", "increase", "decrease", "compar", "more",
		"less", "farther", "short", "far ")
}

// isComparative reports whether a word compares: more, less, taller.
func isComparative(word string) bool {
	return word == "more" || word == "less" || strings.HasSuffix(word, "er") &&
		!words.OneOf(word, "after", "over", "under", "other", "never", "number", "whether", "either", "neither",
			"together", "answer", "her", "per")
}

// plain reports whether the words around a number add little to the question: at most two are neither
// units, nor words of the question, nor part of a plain sentence. Without a question, four may be.
func (q *Question) plain(name string) bool {
	strange := 0
	for _, word := range words.Of(name) {
		if !q.Has(word) && !measure.IsUnit(word) && !isFrame(word) {
			strange++
		}
	}
	return strange <= 2 || q.Text == "" && strange <= 4
}

// isFrame reports whether a word belongs to the frame of a sentence that states an answer:
// "Therefore, they have a total of".
func isFrame(word string) bool {
	const frame expr.Names = `
		therefore thus hence now we he she they there this get have has equals answer final result value total all
		altogether exactly only just in of to at for by per units square cubic percent degrees`
	return frame.Has(word)
}

// Opposes reports whether a sentence speaks of the opposite of what the question asks for,
// as "it gains 24 minutes" does if it asks how many it loses.
func (q *Question) Opposes(sentence string) bool {
	if q.Text == "" {
		return false
	}
	last, lower := " "+q.Last(), " "+strings.ToLower(sentence)
	if words.Begins(lower, " yes,", " no,") { // "Yes, it diverges"
		last = " " + q.From("")
	}
	_, want, asks := strings.Cut(last, "coefficient of ")
	if _, got, says := strings.Cut(lower, "coefficient of "); asks && says && strings.HasPrefix(want, "$") {
		want, _, _ = strings.Cut(want[1:], "$")
		return !strings.HasPrefix(strings.TrimLeft(got, "$"), want+"$")
	}
	for _, pair := range opposites() {
		for i, asked := range pair {
			if strings.Contains(last, " "+asked) && !strings.Contains(last, " "+pair[1-i]) &&
				strings.Contains(lower, " "+pair[1-i]) && !strings.Contains(lower, " "+asked) {
				return true
			}
		}
	}
	return false
}

// opposites returns the beginnings of words that exclude each other.
func opposites() [][2]string {
	return [][2]string{{"gain", "lose"}, {"winn", "lose"}, {"won ", "lost "}, {"profit", "loss"},
		{"increase", "decrease"}, {"rise", "fall"}, {"north", "south"}, {"east", "west"}, {"above", "below"},
		{"largest", "smallest"}, {"oldest", "youngest"}, {"highest", "lowest"}, {"converge", "diverge"},
		{"happen", "fail"}, {"pass", "fail"}}
}

// OtherQuantity reports whether the text before a value calls it a quantity, such as an
// area, and the last sentence of the question names only others.
func (q *Question) OtherQuantity(text string) bool {
	text = strings.TrimRight(strings.ToLower(text), " $*\\(")
	head, ok := strings.CutSuffix(text, " is")
	if !ok {
		head, ok = strings.CutSuffix(text, " equals")
	}
	if at := strings.LastIndex(head, " of "); at >= 0 && !strings.ContainsAny(head[at:], ",.;:") {
		head = head[:at]
	}
	return ok && q.IsOther(head)
}

// IsOther reports whether a name in lower case is that of a quantity, and what the question asks for
// is another one.
func (q *Question) IsOther(name string) bool {
	return q.Text != "" && q.wantedHas(append(quantities(), "side")...) &&
		slices.ContainsFunc(quantities(), func(other string) bool {
			return strings.Contains(name, other) && !q.wantedHas(other)
		})
}

// quantities returns the names of quantities that differ from one another.
func quantities() []string {
	return []string{"area", "perimeter", "circumference", "radius", "diameter", "volume", "speed", "distance", "slope",
		"intercept", "median", "mean", "numerator", "denominator", "hypotenuse",
		"width", "height", "remainder", "quotient", "product", "sum", "difference"}
}
