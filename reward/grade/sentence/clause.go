package sentence

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// clauses finds the clause of a sentence that concludes and those that only explain.
type clauses struct {
	text, lower string // lower is empty if lower-casing changes a letter's length
	all         []Value
	past        []Sentence
}

func (s Sentence) clauses() clauses {
	c := clauses{text: s.Text, lower: strings.ToLower(s.Text), all: s.Values(), past: s.past}
	if len(c.lower) != len(c.text) {
		c.lower = ""
	}
	return c
}

// conclusion returns the offset of the last concluding clause, or 0.
func (s clauses) conclusion() int {
	at := 0
	if k := participle(s.lower); k > 0 && s.leftover() == 0 {
		at = k
	}
	for _, word := range []string{", so ", ", therefore", ", thus", ", hence", "; so ", "; therefore", "; thus",
		", which means", ", which leaves ", ", meaning", ", for a total", ", that is", ", i.e.", ", and so ", ", and therefore", ", then "} {
		at = max(at, strings.LastIndex(s.lower, word))
	}
	if first := words.First(s.lower); at == 0 && len(first) > 5 && strings.HasSuffix(first, "ing") {
		if k := strings.Index(s.lower, ", "); k > 0 && slices.ContainsFunc(s.all, func(c Value) bool { return c.Lo > k }) {
			at = k
		}
	}
	if begin := strings.TrimLeft(s.lower, " *\n"); at == 0 && words.Begins(begin, "because ", "since ") {
		at = max(0, strings.LastIndex(s.lower, ", "))
	}
	return at
}

// reason returns the offset of a clause that only explains what precedes it, or 0.
func (s clauses) reason() int {
	first, lower := 0, s.lower
	if lower == "" {
		return 0
	}
	for _, word := range []string{", assuming ", ", although ", ", the double of ", ", the square of ", ", the half of ", ", the triple of ", ", though ", ", even though ", ", since ", "(since ", "(because ", " because ", ", as ", ", given ", "; multiplying back", "; checking", "; to check", "; check", ", where ", ", if ", ", provided ", ", considering ", ", not ",
		" instead of ", " rather than ", " compared to ", " compared with ", " as opposed to ", " - a ", " – a ", " — a ", " - that's ", ", down from ", ", up from ", ", who ", ", da ", ", weil ", ", car ", ", ya que ", " porque ", " puisque ", " parce que ", ", or about ", ", or approximately ", ", or roughly "} {
		if i := strings.Index(lower, word); i > 0 && (first == 0 || i < first) {
			first = i
		}
	}
	for _, word := range []string{", while ", ", whereas ", ", and the other ", ", and indeed ", ", with ", ", made up of ", ", consisting of ", ", including ", ", attained ",
		", achieved ", ", occurring ", ", half of ", ", the same as ", ", which is twice ", ", which is half ", ", enough ", ", whose digits ", ", of which ", ", along with ", " before ", " since ", ", a ratio of ", ", about ",
		", approximately ", ", roughly "} {
		i := strings.Index(lower, word)
		if i > 0 && (first == 0 || i < first) && (word != " since " || !strings.Contains(lower[i:], ",")) && !strings.HasPrefix(lower[i:], ", with a total") && !slices.ContainsFunc(s.all, func(c Value) bool { return c.Sum && c.Lo > i }) {
			first = i
		}
	}
	for _, i := range []int{s.leftover(), s.difference(), s.breakdown(), s.manner()} {
		if i > 0 && (first == 0 || i < first) {
			first = i
		}
	}
	for k, c := range s.all { // "105 loaves, 70 of them on Tuesday"
		if at := strings.TrimRight(s.text[:c.Lo], " $*"); k > 0 && strings.HasSuffix(at, ",") && words.Begins(s.text[c.Hi:], " of them", " of which", " of these", " of those") && (first == 0 || len(at)-1 < first) {
			first = len(at) - 1
		}
	}
	if i := strings.Index(lower, ", or "); i > 0 && first == 0 && strings.Contains(lower[i:], " per ") && !strings.Contains(lower[:i], " per ") { // "$450, or $45 per person"
		return i
	}
	return first
}

// leftover returns the offset where a sentence only adds what is left over, as in "So
// they took 26 of the 40, leaving 14", or 0. The last computed value is the conclusion.
func (s clauses) leftover() int {
	at, all := participle(s.lower), s.all
	n := slices.IndexFunc(all, func(c Value) bool { return c.Lo > at })
	if at <= 0 || n <= 0 || slices.ContainsFunc(all[n:], func(c Value) bool { return c.Sum || c.bold }) {
		return 0
	}
	k := n - 1
	for k > 0 && all[k].Aside {
		k--
	}
	taken, left := all[k], all[n]
	if taken.bold {
		return at
	}
	of := strings.TrimLeft(s.text[taken.Hi:], " *$")
	part := words.Concludes(s.text) && words.Begins(of, "of ", "out of ")
	result, known := taken, taken.Sum
	seen := s.given(left, at)
	for _, p := range slices.Backward(s.past) {
		for _, c := range slices.Backward(p.Values()) {
			if c.Sum && !known {
				result, known = c, true
			}
		}
	}
	if part && !known || known && answer.SameValue(taken.Text, result.Text) && (seen || part) {
		return at
	}
	return 0
}

// participle returns the offset of ", leaving" and the like, or -1.
func participle(lower string) int {
	return max(strings.LastIndex(lower, ", leaving"), strings.LastIndex(lower, ", making"), strings.LastIndex(lower, ", giving"))
}

// manner returns the offset where a sentence ends in known facts, as in "He drives 60
// mph, covering the 120 miles", or 0.
func (s clauses) manner() int {
	at := strings.LastIndex(s.lower, ", ")
	if at <= 0 {
		return 0
	}
	verb, _, _ := strings.Cut(s.lower[at+len(", "):], " ")
	known := words.OneOf(verb, "having", "rejecting", "discarding", "ignoring", "using", "assuming", "averaging", "keeping", "counting")
	before := false
	for _, c := range s.all {
		if c.Lo < at {
			before = before || !c.Aside
		} else if c.Sum || !known && !s.given(c, at) {
			return 0
		}
	}
	if !before || !strings.HasSuffix(verb, "ing") || participle(s.lower) == at {
		return 0
	}
	return at
}

// given reports whether the sentence up to at, or the text before it, mentions c.
func (s clauses) given(c Value, at int) bool {
	return mentions(s.text[:at], c.Text) || slices.ContainsFunc(s.past, func(p Sentence) bool { return mentions(p.Text, c.Text) })
}

// mentions reports whether number is a word of text.
func mentions(text, number string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" $*()=+-,.;:\n", r) }), strings.Trim(words.First(number), "$"))
}

// difference returns the offset where a sentence compares its answer, as in "Ben has
// 26, 12 more than Tom", or 0.
func (s clauses) difference() int {
	for k, c := range s.all {
		before := strings.TrimSuffix(strings.TrimRight(s.text[:c.Lo], " $*"), ", which is")
		if k == 0 || before == s.text[:c.Lo] || !strings.HasSuffix(s.text[:len(before)+1], ",") && !strings.HasSuffix(before, ",") {
			continue
		}
		fields := strings.Fields(strings.Trim(s.text[c.Hi:min(len(s.text), c.Hi+40)], " *$"))
		if n := slices.Index(fields, "than"); n > 0 && n < 4 && slices.ContainsFunc(fields[:n], func(f string) bool { return f == "more" || f == "fewer" || f == "less" }) {
			return c.Lo - 1
		}
		if k+1 == len(s.all) && strings.HasSuffix(before, ",") && slices.ContainsFunc(fields[:min(len(fields), 2)], func(f string) bool { return f == "each" || f == "per" || f == "apiece" || f == "a" || f == "an" }) { // 45 minutes each way
			return c.Lo - 1
		}
	}
	return 0
}

// breakdown returns the offset where a sentence lists the parts of its answer, as in
// "He pays $11: $8 for lunch plus $3 for a drink", or 0.
func (s clauses) breakdown() int {
	all := s.all
	for k := 1; k+1 < len(all); k++ {
		if c := all[k-1]; strings.HasSuffix(strings.TrimRight(s.text[c.Hi:all[k].Lo], " $*"), ":") && !strings.Contains(s.text[c.Hi:all[k].Lo], " is") && !c.Aside && strings.Count(s.text[c.Hi:], ":") == 1 && !slices.ContainsFunc(all[k:], func(c Value) bool { return c.Sum || c.bold }) {
			return all[k].Lo - 1
		}
	}
	return 0
}
