package sentence

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Main returns what a sentence is about: readings of the last candidate that is not
// aside, within the last concluding clause if there is one. Neighbours in a list are
// included.
func (s Sentence) Main() []string {
	if s.Hedges() {
		return []string{joined(s.Values())}
	}
	all := s.Meant()
	parts := s.clauses()
	from := parts.conclusion()
	if k := slices.IndexFunc(all, func(c Value) bool { return c.Lo >= from }); k > 0 {
		all = all[k:]
	}
	all = items{s.Text, items{s.Text, all}.plain()}.measured()
	if k := parts.reason(); k > from {
		all = items{s.Text, all}.explained(k)
	}
	settled := len(all) - 1 // the last result followed only by asides
	outer := slices.ContainsFunc(all, func(c Value) bool { return !c.Aside && !c.aim })
	for settled >= 0 && (!all[settled].Sum && (all[settled].Aside || all[settled].aim) || all[settled].inner && outer) {
		settled--
	}
	for _, keep := range []func(Value) bool{
		func(c Value) bool { return c.bold && !c.Aside },
		func(c Value) bool { return settled >= 0 && c.Sum && c.Lo == all[settled].Lo },
		func(c Value) bool { return c.Sum && !c.Aside },
		func(c Value) bool { return !c.Aside && !c.aim },
		func(c Value) bool { return !c.Aside },
		func(c Value) bool { return !c.inner },
		func(Value) bool { return true },
	} {
		for k := len(all) - 1; k >= 0; k-- {
			if keep(all[k]) {
				return items{s.Text, all}.readings(k)
			}
		}
	}
	return nil
}

// Hedges reports whether a sentence leaves open which of several values is the answer.
func (s Sentence) Hedges() bool {
	lower := strings.ToLower(s.Text)
	open := words.Contains(lower, "but it might", "but it could", "but might be", "but could be", "somewhere between", "under the second", "in the second case", "on the other reading", "if that is not", "give or take", "alternatively", "both accepted", "seems to work", "works too", "votes)", "(or ", "either is", "both are", "would also be", "also acceptable", "also possible", "in which case", "although it could", "also works")
	if all := s.Values(); !open && len(all) > 1 && strings.HasPrefix(strings.TrimLeft(s.Text[all[0].Hi:], " %$*"), "(") && strings.Contains(lower[all[0].Hi:], " if ") {
		open = true // 25% (33.3% if …)
	}
	if all := s.Values(); !open && len(all) > 1 && strings.Contains(lower[all[0].Hi:], " if ") && strings.Count(lower[all[0].Hi:], " if ") > 1 {
		open = true // 1/9 if …, and 2/21 if …
	}
	if !open && (!words.Contains(lower, "could be", "might be", "may be", "or possibly", "or perhaps", "or maybe", "could also", "might also", "depending on") || !words.Contains(lower, " or ", "also")) {
		return false
	}
	all := s.Values()
	return len(all) > 1 && len(all) < 12 && slices.ContainsFunc(all[1:], func(c Value) bool { return !answer.SameValue(all[0].Text, c.Text) })
}

// Meant returns the candidates that can be the answer. It leaves out denied values and,
// if there are values, names such as x.
func (s Sentence) Meant() []Value {
	all := s.Values()
	isName := func(c Value) bool { return len(c.Text) == 1 && expr.LetterAt(c.Text, 0) }
	if values := slices.DeleteFunc(slices.Clone(all), isName); len(values) > 0 {
		all = values
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Value) bool {
		return isDenied(place{s.Text, c.Lo}.before(24), place{s.Text, c.Hi}.after(24))
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
	return words.Begins(after, "is not ", "is wrong", "is incorrect", "is extraneous", "is rejected", "is impossible", "isn't")
}
