package sentence

import (
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/measure"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// items are candidates of a sentence, in order.
type items struct {
	text string // of the sentence
	all  []Value
}

// before returns the text between item k and the item before it.
func (l items) before(k int) string { return l.text[l.all[k-1].Hi:l.all[k].Lo] }

// measured drops a measure repeated in other units, as in "2.5 hours, or 2 hours and 30
// minutes", if the two cannot be compared.
func (l items) measured() []Value {
	all := l.all
	for k := 1; k < len(all); k++ {
		between := l.before(k)
		word, rest, _ := strings.Cut(strings.TrimSpace(between), ",")
		if measure.IsUnit(word) && strings.TrimSpace(rest) == "or" && !strings.Contains(all[k].Text, "%") && !answer.SameValue(all[k-1].Text, all[k].Text) {
			return all[:k]
		}
	}
	return all
}

// maxSums bounds how many values before an explanation are compared with its results.
const maxSums = 16

// explained removes the candidates of the explanation that begins at k. If arithmetic
// in the explanation arrives at a candidate, only that one remains: "he needs 55 more
// to be above 60 because 300 - 245 = 55".
func (l items) explained(k int) []Value {
	all := l.all
	n := slices.IndexFunc(all, func(c Value) bool { return c.Lo > k })
	if n <= 0 {
		return all
	}
	end := strings.IndexAny(l.text[k+1:], ",;")
	if so := strings.Index(l.text[k+1:], " so "); so >= 0 && (end < 0 || so < end) {
		end = so
	}
	if end >= 0 { // the sentence may continue after the explanation
		if m := slices.IndexFunc(all, func(c Value) bool { return c.Sum && c.Lo > k+1+end }); m >= 0 {
			return all[m:]
		}
	}
	if strings.Contains(l.text[k:], " then ") {
		return all
	}
	for _, c := range all[n:] {
		for i := n - 1; i >= max(0, n-maxSums) && c.Sum; i-- {
			if answer.SameValue(all[i].Text, c.Text) {
				return all[i : i+1]
			}
		}
	}
	return all[:n]
}

// readings returns the readings of candidate k together with its neighbours in a list.
// Neighbours that restate it are separate readings.
func (l items) readings(k int) []string {
	all := l.all
	first := k
	for first > 0 && k-first < 32 && strings.Trim(l.before(first), " ") == "" {
		first--
	}
	if first < k { // 1 2 3
		return []string{strings.TrimSpace(l.text[all[first].Lo:all[k].Hi])}
	}
	for first > 0 && strings.HasSuffix(strings.TrimRight(l.text[:all[first-1].Lo], " $"), "both") && markup.Joins(l.before(first)) {
		first--
	}
	for first > 0 && (all[k].Aside || !all[first-1].Aside) && markup.Joins(l.before(first)) && !l.solves(first) {
		first--
	}
	last := k
	for all[k].Sum && last+1 < len(all) && strings.TrimSpace(l.before(last+1)) == "," && !all[last+1].Aside {
		last++
	}
	readings := l.changed(first, last, joined(all[first:last+1]))
	if n := strconv.Itoa(last + 1 - first); last > first && l.counted(first, n) { // "There are 2 roots, 1 and 4"
		return []string{readings, n}
	}
	for j := first; j < k; j++ {
		if answer.SameValue(all[j].Text, all[k].Text) {
			return []string{all[k].Text, all[j].Text}
		}
	}
	if digits, ok := strings.CutSuffix(all[k].Text, " thousand"); ok && first == k {
		return []string{readings, digits + "k"}
	}
	if first == k && k > 0 && strings.ContainsAny(all[k].Text, "+*/×") && answer.SameValue(all[k-1].Text, all[k].Text) {
		return []string{l.changed(k-1, k-1, all[k-1].Text)}
	}
	if first == k && k > 0 && words.Rounds(l.before(k)) {
		return []string{readings, all[k-1].Text}
	}
	if k+1 < len(all) && words.Restates(l.before(k+1)) && answer.SameValue(all[k].Text, all[k+1].Text) {
		return []string{readings, all[k+1].Text}
	}
	if first == k && k > 0 && words.Restates(l.before(k)) && answer.SameValue(all[k-1].Text, all[k].Text) {
		return []string{readings, all[k-1].Text}
	}
	return []string{readings}
}

// plain drops the candidates whose meaning the words around them change, as in "18, twice
// 9", if one remains that the sentence is about.
func (l items) plain() []Value {
	plain := slices.DeleteFunc(slices.Clone(l.all), func(c Value) bool {
		after := words.After(l.text[c.Hi:])
		return words.Before(l.text[max(0, c.Lo-40):c.Lo]) != "" || after == "is not" || after == "off"
	})
	if slices.ContainsFunc(plain, func(c Value) bool { return !c.Aside && !c.aim }) {
		return plain
	}
	return l.all
}

// changed adds to text, which items first to last give, the words around them that change
// its meaning: "27" becomes "more than 27".
func (l items) changed(first, last int, text string) string {
	lo, hi := l.all[first].Lo, l.all[last].Hi
	if before := words.Before(l.text[max(0, lo-40):lo]); before != "" {
		text = before + " " + text
	}
	if after := words.After(l.text[hi:]); after != "" {
		text += " " + after
	}
	return text
}

// List returns the first n values of s as one list, with the words around it that change
// its meaning.
func (s Sentence) List(n int) string {
	all := s.Values()
	return items{s.Text, all}.changed(0, n-1, joined(all[:n]))
}

// counted reports whether the number of the items from first on, n, precedes them.
func (l items) counted(first int, n string) bool {
	if slices.ContainsFunc(l.all[:first], func(c Value) bool { return strings.TrimSpace(c.Text) == n }) {
		return true
	}
	digits, ok := spelled(strings.TrimRight(l.text[:l.all[first].Lo], " :$("))
	return ok && strings.HasPrefix(digits, n+" ")
}

// solves reports whether item k is the next step after the item before it rather than
// its neighbour in a list: "2x = 20 and x = 10".
func (l items) solves(k int) bool {
	between := strings.TrimRight(l.before(k), " $*")
	before, equal := strings.CutSuffix(strings.TrimRight(l.text[:l.all[k-1].Lo], " $*"), "=")
	if !equal || !strings.HasSuffix(between, "=") {
		return false
	}
	side := strings.TrimRight(before, " ")
	side = side[strings.LastIndexAny(side, " $*\n")+1:]
	return strings.ContainsAny(side, "0123456789²³^")
}

func joined(list []Value) string {
	texts := make([]string, len(list))
	for i, c := range list {
		texts[i] = c.Text
	}
	return strings.Join(texts, " , ")
}
