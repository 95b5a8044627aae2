package grade

import (
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/wording"
)

// main returns what a sentence is about: readings of the last candidate that is not
// aside, within the last concluding clause if there is one. Neighbours in a list are
// included.
func (s sentence) main() []string {
	if s.hedges() {
		return []string{joined(s.candidates())}
	}
	all := s.meant()
	from := s.clause()
	if k := slices.IndexFunc(all, func(c candidate) bool { return c.lo >= from }); k > 0 {
		all = all[k:]
	}
	all = s.first(all)
	if k := s.reason(); k > from {
		all = s.explained(all, k)
	}
	settled := len(all) - 1 // the last result followed only by asides
	outer := slices.ContainsFunc(all, func(c candidate) bool { return !c.aside && !c.aim })
	for settled >= 0 && (!all[settled].sum && (all[settled].aside || all[settled].aim) || all[settled].inner && outer) {
		settled--
	}
	for _, keep := range []func(candidate) bool{
		func(c candidate) bool { return c.bold && !c.aside },
		func(c candidate) bool { return settled >= 0 && c.sum && c.lo == all[settled].lo },
		func(c candidate) bool { return c.sum && !c.aside },
		func(c candidate) bool { return !c.aside && !c.aim },
		func(c candidate) bool { return !c.aside },
		func(c candidate) bool { return !c.inner },
		func(candidate) bool { return true },
	} {
		for k := len(all) - 1; k >= 0; k-- {
			if keep(all[k]) {
				return s.around(all, k)
			}
		}
	}
	return nil
}

// hedges reports whether a sentence leaves open which of several values is the answer.
func (s sentence) hedges() bool {
	lower := strings.ToLower(s.text)
	open := slices.ContainsFunc([]string{"but it might", "but it could", "but might be", "but could be", "somewhere between", "under the second", "in the second case", "on the other reading"},
		func(word string) bool { return strings.Contains(lower, word) })
	if !open && (!slices.ContainsFunc([]string{"could be", "might be", "may be", "or possibly", "or perhaps", "or maybe", "could also", "might also", "depending on"},
		func(word string) bool { return strings.Contains(lower, word) }) || !strings.Contains(lower, " or ") && !strings.Contains(lower, "also")) {
		return false
	}
	all := s.candidates()
	return len(all) > 1 && len(all) < 8 && slices.ContainsFunc(all[1:], func(c candidate) bool { return !answer.Equal(all[0].text, c.text) })
}

// meant returns the candidates that can be the answer. It leaves out denied values and,
// if there are values, names such as x.
func (s sentence) meant() []candidate {
	all := s.candidates()
	isName := func(c candidate) bool { return len(c.text) == 1 && isLetterAt(c.text, 0) }
	if values := slices.DeleteFunc(slices.Clone(all), isName); len(values) > 0 {
		all = values
	}
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return s.refused(c) || strings.HasSuffix(strings.TrimRight(strings.ToLower(s.text[max(0, c.lo-12):c.lo]), " $*"), " not")
	})
}

// explained removes the candidates of the explanation that begins at k. If arithmetic
// in the explanation arrives at a candidate, only that one remains: "he needs 55 more
// to be above 60 because 300 - 245 = 55".
func (s sentence) explained(all []candidate, k int) []candidate {
	n := slices.IndexFunc(all, func(c candidate) bool { return c.lo > k })
	if n <= 0 {
		return all
	}
	end := strings.IndexAny(s.text[k+1:], ",;")
	if so := strings.Index(s.text[k+1:], " so "); so >= 0 && (end < 0 || so < end) {
		end = so
	}
	if end >= 0 { // the sentence may continue after the explanation
		if m := slices.IndexFunc(all, func(c candidate) bool { return c.sum && c.lo > k+1+end }); m >= 0 {
			return all[m:]
		}
	}
	if strings.Contains(s.text[k:], " then ") {
		return all
	}
	for _, c := range all[n:] {
		for i := n - 1; i >= 0 && c.sum; i-- {
			if answer.Equal(all[i].text, c.text) {
				return all[i : i+1]
			}
		}
	}
	return all[:n]
}

// refused reports whether a sentence denies candidate c.
func (s sentence) refused(c candidate) bool {
	before := s.text[max(0, c.lo-24):c.lo]
	if k := max(strings.LastIndex(before, "eject"), strings.LastIndex(before, "iscard")); k >= 0 && !strings.ContainsAny(before[k:], "0123456789,;:") {
		return true
	}
	after := strings.TrimLeft(s.text[c.hi:min(len(s.text), c.hi+24)], " $*)")
	return slices.ContainsFunc([]string{"is not ", "is wrong", "is incorrect", "is extraneous", "is rejected", "is impossible", "isn't"}, func(word string) bool { return strings.HasPrefix(after, word) })
}

// reason returns the offset of a clause that only explains what precedes it, or 0.
func (s sentence) reason() int {
	first, lower := 0, strings.ToLower(s.text)
	if len(lower) != len(s.text) {
		return 0
	}
	for _, word := range []string{", assuming ", ", since ", "(since ", "(because ", " because ", ", as ", ", given ", ", where ", ", if ", ", provided ", ", considering ", ", not ",
		" instead of ", " rather than ", " compared to ", " compared with ", " as opposed to ", " - a ", " – a ", " — a ", " - that's ", ", down from ", ", up from ", ", who ", ", da ", ", weil ", ", car ", ", ya que ", " porque ", " puisque ", " parce que ", ", or about ", ", or approximately ", ", or roughly "} {
		if i := strings.Index(lower, word); i > 0 && (first == 0 || i < first) {
			first = i
		}
	}
	for _, word := range []string{", while ", ", whereas ", ", and the other ", ", and indeed ", ", with ", ", made up of ", ", consisting of ", ", including ", ", attained ",
		", achieved ", ", occurring ", ", half of ", ", which is twice ", ", which is half ", ", enough ", ", whose digits ", ", of which ", ", along with ", " before ", " since ", ", a ratio of ", ", about ",
		", approximately ", ", roughly "} {
		i := strings.Index(lower, word)
		if i > 0 && (first == 0 || i < first) && (word != " since " || !strings.Contains(lower[i:], ",")) && !strings.HasPrefix(lower[i:], ", with a total") && !slices.ContainsFunc(s.candidates(), func(c candidate) bool { return c.sum && c.lo > i }) {
			first = i
		}
	}
	for _, i := range []int{s.leftover(lower), s.difference(), s.breakdown(), s.manner(lower)} {
		if i > 0 && (first == 0 || i < first) {
			first = i
		}
	}
	if i := strings.Index(lower, ", or "); i > 0 && first == 0 && strings.Contains(lower[i:], " per ") && !strings.Contains(lower[:i], " per ") { // "$450, or $45 per person"
		return i
	}
	return first
}

// leftover returns the offset where a sentence only adds what is left over, as in "So
// they took 26 of the 40, leaving 14", or 0. The last computed value is the conclusion.
func (s sentence) leftover(lower string) int {
	at := participle(lower)
	all := s.candidates()
	n := slices.IndexFunc(all, func(c candidate) bool { return c.lo > at })
	if at <= 0 || n <= 0 || slices.ContainsFunc(all[n:], func(c candidate) bool { return c.sum || c.bold }) {
		return 0
	}
	k := n - 1
	for k > 0 && all[k].aside {
		k--
	}
	taken, left := all[k], all[n]
	if taken.bold {
		return at
	}
	of := strings.TrimLeft(s.text[taken.hi:], " *$")
	part := wording.Concludes(s.text) && (strings.HasPrefix(of, "of ") || strings.HasPrefix(of, "out of "))
	result, known := taken, taken.sum
	seen := s.given(left, at)
	for _, p := range slices.Backward(s.past) {
		for _, c := range slices.Backward(p.candidates()) {
			if c.sum && !known {
				result, known = c, true
			}
		}
	}
	if part && !known || known && answer.Equal(taken.text, result.text) && (seen || part) {
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
func (s sentence) manner(lower string) int {
	at := strings.LastIndex(lower, ", ")
	if at <= 0 {
		return 0
	}
	verb, _, _ := strings.Cut(lower[at+len(", "):], " ")
	known := slices.Contains([]string{"having", "rejecting", "discarding", "ignoring", "using", "assuming", "averaging", "keeping", "counting"}, verb)
	before := false
	for _, c := range s.candidates() {
		if c.lo < at {
			before = before || !c.aside
		} else if c.sum || !known && !s.given(c, at) {
			return 0
		}
	}
	if !before || !strings.HasSuffix(verb, "ing") || participle(lower) == at {
		return 0
	}
	return at
}

// given reports whether the sentence up to at, or the text before it, mentions c.
func (s sentence) given(c candidate, at int) bool {
	return mentions(s.text[:at], c.text) || slices.ContainsFunc(s.past, func(p sentence) bool { return mentions(p.text, c.text) })
}

// mentions reports whether number is a word of text.
func mentions(text, number string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" $*()=+-,.;:\n", r) }), strings.Trim(firstField(number), "$"))
}

// difference returns the offset where a sentence compares its answer, as in "Ben has
// 26, 12 more than Tom", or 0.
func (s sentence) difference() int {
	for k, c := range s.candidates() {
		before := strings.TrimSuffix(strings.TrimRight(s.text[:c.lo], " $*"), ", which is")
		if k == 0 || before == s.text[:c.lo] || !strings.HasSuffix(s.text[:len(before)+1], ",") && !strings.HasSuffix(before, ",") {
			continue
		}
		fields := strings.Fields(strings.Trim(s.text[c.hi:min(len(s.text), c.hi+40)], " *$"))
		if n := slices.Index(fields, "than"); n > 0 && n < 4 && slices.ContainsFunc(fields[:n], func(f string) bool { return f == "more" || f == "fewer" || f == "less" }) {
			return c.lo - 1
		}
		if k+1 == len(s.candidates()) && strings.HasSuffix(before, ",") && slices.ContainsFunc(fields[:min(len(fields), 2)], func(f string) bool { return f == "each" || f == "per" || f == "apiece" || f == "a" || f == "an" }) { // 45 minutes each way
			return c.lo - 1
		}
	}
	return 0
}

// breakdown returns the offset where a sentence lists the parts of its answer, as in
// "He pays $11: $8 for lunch plus $3 for a drink", or 0.
func (s sentence) breakdown() int {
	all := s.candidates()
	for k := 1; k+1 < len(all); k++ {
		if c := all[k-1]; strings.HasSuffix(strings.TrimRight(s.text[c.hi:all[k].lo], " $*"), ":") && !strings.Contains(s.text[c.hi:all[k].lo], " is") && !c.aside && strings.Count(s.text[c.hi:], ":") == 1 && !slices.ContainsFunc(all[k:], func(c candidate) bool { return c.sum || c.bold }) {
			return all[k].lo - 1
		}
	}
	return 0
}

// first drops a measure repeated in other units, as in "2.5 hours, or 2 hours and 30
// minutes", if the two cannot be compared.
func (s sentence) first(all []candidate) []candidate {
	for k := 1; k < len(all); k++ {
		between := s.text[all[k-1].hi:all[k].lo]
		word, rest, _ := strings.Cut(strings.TrimSpace(between), ",")
		if answer.IsUnit(word) && strings.TrimSpace(rest) == "or" && !strings.Contains(all[k].text, "%") && !answer.Equal(all[k-1].text, all[k].text) {
			return all[:k]
		}
	}
	return all
}

// clause returns the offset of the last concluding clause, or 0.
func (s sentence) clause() int {
	at, lower := 0, strings.ToLower(s.text)
	if len(lower) != len(s.text) {
		return 0
	}
	if k := participle(lower); k > 0 && s.leftover(lower) == 0 {
		at = k
	}
	for _, word := range []string{", so ", ", therefore", ", thus", ", hence", "; so ", "; therefore", "; thus",
		", which means", ", meaning", ", for a total", ", that is", ", i.e.", ", and so ", ", and therefore", ", then "} {
		at = max(at, strings.LastIndex(lower, word))
	}
	return at
}

// around returns the readings of candidate k together with its neighbours in a list.
// Neighbours that restate it are separate readings.
func (s sentence) around(all []candidate, k int) []string {
	first := k
	for first > 0 && (all[k].aside || !all[first-1].aside) && answer.Joins(s.text[all[first-1].hi:all[first].lo]) && !s.solves(all[first-1], all[first]) {
		first--
	}
	last := k
	for all[k].sum && last+1 < len(all) && strings.TrimSpace(s.text[all[last].hi:all[last+1].lo]) == "," && !all[last+1].aside {
		last++
	}
	readings := joined(all[first : last+1])
	if n := strconv.Itoa(last + 1 - first); last > first && s.counts(all, first, n) { // "There are 2 roots, 1 and 4"
		return []string{readings, n}
	}
	if head, _, ok := strings.Cut(readings, "*1000"); ok && first == k { // "26 billion" may answer "how many billion"
		return []string{readings, head}
	}
	if digits, ok := strings.CutPrefix(all[k].text, "1000*"); ok && first == k {
		return []string{readings, digits + "k"}
	}
	for j := first; j < k; j++ {
		if answer.Equal(all[j].text, all[k].text) {
			return []string{all[k].text, all[j].text}
		}
	}
	if first == k && k > 0 && wording.Rounds(s.text[all[k-1].hi:all[k].lo]) {
		return []string{readings, all[k-1].text}
	}
	if k+1 < len(all) && wording.Restates(s.text[all[k].hi:all[k+1].lo]) && answer.Equal(all[k].text, all[k+1].text) {
		return []string{readings, all[k+1].text}
	}
	if first == k && k > 0 && wording.Restates(s.text[all[k-1].hi:all[k].lo]) && answer.Equal(all[k-1].text, all[k].text) {
		return []string{readings, all[k-1].text}
	}
	return []string{readings}
}

// counts reports whether the number of items, n, precedes them.
func (s sentence) counts(all []candidate, first int, n string) bool {
	if slices.ContainsFunc(all[:first], func(c candidate) bool { return strings.TrimSpace(c.text) == n }) {
		return true
	}
	digits, ok := sentence{text: strings.TrimRight(s.text[:all[first].lo], " :$(")}.spelled()
	return ok && strings.HasPrefix(digits, n+" ")
}

// solves reports whether b is the next step after a rather than its neighbour in a
// list: "2x = 20 and x = 10".
func (s sentence) solves(a, b candidate) bool {
	between := strings.TrimRight(s.text[a.hi:b.lo], " $*")
	before, equal := strings.CutSuffix(strings.TrimRight(s.text[:a.lo], " $*"), "=")
	if !equal || !strings.HasSuffix(between, "=") {
		return false
	}
	side := strings.TrimRight(before, " ")
	side = side[strings.LastIndexAny(side, " $*\n")+1:]
	return strings.ContainsAny(side, "0123456789²³^")
}

func joined(list []candidate) string {
	texts := make([]string, len(list))
	for i, c := range list {
		texts[i] = c.text
	}
	return strings.Join(texts, " , ")
}
