package grade

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
)

// main returns what a sentence is about: readings of the last candidate that is not
// aside, within the last concluding clause if there is one. Neighbours in a list are
// included.
func (s sentence) main() []string {
	if s.hedges() {
		return []string{joined(s.candidates())}
	}
	all := s.meant()
	parts := s.clauses()
	from := parts.conclusion()
	if k := slices.IndexFunc(all, func(c candidate) bool { return c.lo >= from }); k > 0 {
		all = all[k:]
	}
	all = items{s.text, items{s.text, all}.plain()}.measured()
	if k := parts.reason(); k > from {
		all = items{s.text, all}.explained(k)
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
				return items{s.text, all}.readings(k)
			}
		}
	}
	return nil
}

// hedges reports whether a sentence leaves open which of several values is the answer.
func (s sentence) hedges() bool {
	lower := strings.ToLower(s.text)
	open := slices.ContainsFunc([]string{"but it might", "but it could", "but might be", "but could be", "somewhere between", "under the second", "in the second case", "on the other reading", "if that is not", "give or take", "alternatively", "both accepted", "seems to work", "works too", "votes)", "(or ", "either is", "both are", "would also be", "also acceptable", "also possible", "in which case", "although it could", "also works"},
		func(word string) bool { return strings.Contains(lower, word) })
	if all := s.candidates(); !open && len(all) > 1 && strings.HasPrefix(strings.TrimLeft(s.text[all[0].hi:], " %$*"), "(") && strings.Contains(lower[all[0].hi:], " if ") {
		open = true // 25% (33.3% if …)
	}
	if all := s.candidates(); !open && len(all) > 1 && strings.Contains(lower[all[0].hi:], " if ") && strings.Count(lower[all[0].hi:], " if ") > 1 {
		open = true // 1/9 if …, and 2/21 if …
	}
	if !open && (!slices.ContainsFunc([]string{"could be", "might be", "may be", "or possibly", "or perhaps", "or maybe", "could also", "might also", "depending on"},
		func(word string) bool { return strings.Contains(lower, word) }) || !strings.Contains(lower, " or ") && !strings.Contains(lower, "also")) {
		return false
	}
	all := s.candidates()
	return len(all) > 1 && len(all) < 12 && slices.ContainsFunc(all[1:], func(c candidate) bool { return !answer.SameValue(all[0].text, c.text) })
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
		return isDenied(place{s.text, c.lo}.before(24), place{s.text, c.hi}.after(24))
	})
}

// isDenied reports whether the words around a value deny it.
func isDenied(before, after string) bool {
	if strings.HasSuffix(strings.TrimRight(strings.ToLower(before[max(0, len(before)-12):]), " $*"), " not") {
		return true
	}
	if k := max(strings.LastIndex(before, "eject"), strings.LastIndex(before, "iscard")); k >= 0 && !strings.ContainsAny(before[k:], "0123456789,;:") {
		return true
	}
	after = strings.TrimLeft(after, " $*)")
	return slices.ContainsFunc([]string{"is not ", "is wrong", "is incorrect", "is extraneous", "is rejected", "is impossible", "isn't"}, func(word string) bool { return strings.HasPrefix(after, word) })
}
