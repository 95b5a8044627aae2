package grade

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/wording"
)

// conclusion reads the last sentence with a number or mathematics. If that sentence
// only remarks on the concluding one, it reads the concluding one.
func conclusion(text string) claim {
	if isAlone(text) {
		text = strings.TrimPrefix(strings.TrimSpace(text), "A: ")
		return claim{readings: []string{text}, text: text}
	}
	all := sentences(text[max(0, len(text)-maxFinal):])
	if k := len(all) - 1; k >= 0 && wording.IsCutOff(all[k].text) {
		return claim{readings: []string{all[k].text}, text: all[k].text}
	}
	var said []sentence
	for k := len(all) - 1; k >= 0 && len(said) < 4; k-- {
		if wording.GivesUp(all[k].text) {
			if strings.ContainsAny(all[k].text, "0123456789") {
				return claim{}
			}
			return claim{readings: []string{all[k].text}, text: all[k].text}
		}
		if !wording.IsChat(all[k].text) && (len(all[k].candidates()) > 0 || hasNumberWord(all[k].text) || wording.Concludes(all[k].text)) {
			said = append(said, all[k])
		}
	}
	if len(said) == 0 {
		return wordsOnly(all)
	}
	rest := "" // after the sentence with a number
	for _, s := range all {
		if s.lo > said[0].lo && !wording.IsChat(s.text) {
			rest += s.text
		}
	}
	var last []string // a sentence without numbers after the one with a number
	if k := len(all) - 1; !wording.IsChat(all[k].text) && all[k].lo > said[0].lo {
		last = []string{all[k].text}
	}
	pick := said[0]
	if wording.Remarks(pick.text) {
		if k := slices.IndexFunc(said, func(s sentence) bool { return wording.Concludes(s.text) }); k > 0 {
			pick = said[k]
		}
	}
	pick.past = all[:slices.IndexFunc(all, func(s sentence) bool { return s.lo == pick.lo })]
	if wording.RepeatsQuestion(pick.text) {
		return claim{readings: last, text: pick.concluding() + rest}
	}
	return claim{readings: append(pick.readings(), last...), text: pick.concluding() + rest}
}

// concluding returns the concluding clause of a sentence, or all of it.
func (s sentence) concluding() string { return s.text[s.clauses().conclusion():] }

// isAlone reports whether a response is a bare answer without a sentence around it.
func isAlone(text string) bool {
	text = strings.TrimPrefix(strings.TrimSpace(text), "A: ")
	word, _, titled := strings.Cut(text, ":")
	titled = titled && len(word) > 1 && strings.IndexFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) < 0
	foreign := func(r rune) bool { return r >= utf8.RuneSelf && unicode.IsLetter(r) && !unicode.Is(unicode.Greek, r) }
	counted := strings.Contains(text, "thousand") || strings.Contains(text, "illion") || strings.Contains(text, " base ")
	if titled || counted || strings.Contains(text, "i.e.") || len(text) > 200 || strings.ContainsAny(text, "\n'") || prose(text) || strings.IndexFunc(text, foreign) >= 0 || strings.HasPrefix(text, "=>") || wording.Concludes(text) {
		return false
	}
	n, ok := expr.Parse(answer.Clean(text), expr.Mode{Thousands: true})
	return ok && !n.Has(func(m *expr.Node) bool { return m.Kind == expr.Label || m.Kind == expr.Text })
}

// readings returns the main candidate of a sentence, and the whole sentence for answers
// in words.
func (s sentence) readings() []string {
	found := s.main()
	if digits, ok := s.counted(); ok {
		return []string{digits}
	}
	other := slices.ContainsFunc(s.meant(), func(c candidate) bool { return !c.aside || c.sum })
	if digits, ok := spelled(s.text); ok && !other {
		found = []string{digits} // "seven in 4 weeks"
	}
	if parts := strings.Split(s.text, "**"); len(parts) >= 3 && !strings.ContainsAny(parts[len(parts)-2], "0123456789") {
		found = append(found, parts[len(parts)-2])
	}
	if letter, ok := choice(s.text); ok {
		found = append(found, letter)
	}
	if from := s.clauses().conclusion(); from > 0 && !slices.ContainsFunc(s.candidates(), func(c candidate) bool { return c.lo > from }) && derives(s.text[from:]) {
		return []string{strings.TrimLeft(s.text[from:], ", ;")} // 24, so it is half of that
	}
	if from := s.clauses().conclusion(); from > 0 && !strings.ContainsAny(s.text[from:], "0123456789") {
		found = append(found, strings.TrimLeft(s.text[from:], ", ;"))
	}
	if at := strings.LastIndex(s.text, ": "); at >= 0 && strings.Trim(s.text[at+2:], " ,.-*\n0123456789") == "" {
		found = append(found, s.text[at+2:])
	}
	if head, _, ok := strings.Cut(s.text, ", not "); ok {
		found = append(found, strings.TrimSpace(head))
	}
	return append(found, strings.TrimPrefix(strings.TrimSpace(s.text), "A: "))
}

// derives reports whether a clause without numbers computes with those before it.
func derives(clause string) bool {
	return slices.ContainsFunc([]string{" half of", " twice", " double", " the rest", " that minus", " that plus", " less than", " more than"}, func(words string) bool {
		return strings.Contains(clause, words)
	})
}

// counted returns the number in words that a sentence concludes after its reason:
// "Since 9 > 0, there are two solutions".
func (s sentence) counted() (string, bool) {
	at := strings.LastIndex(s.text, ", ")
	lower := strings.ToLower(strings.TrimSpace(s.text))
	if at < 0 || !strings.HasPrefix(lower, "since ") && !strings.HasPrefix(lower, "because ") && !strings.HasPrefix(lower, "as ") {
		return "", false
	}
	if slices.ContainsFunc(s.candidates(), func(c candidate) bool { return c.lo > at }) {
		return "", false
	}
	return spelled(s.text[at:])
}

// choice returns the letter that a sentence chooses: "I choose option B", "B is the
// correct answer".
func choice(s string) (string, bool) {
	if _, after, ok := strings.Cut(s, "选"); ok { // Chinese: "choose"
		if letter := strings.Trim(after, " ().,:$*\n"); len(letter) == 1 && letter[0] >= 'A' && letter[0] <= 'J' {
			return letter, true
		}
	}
	fields := strings.Fields(s)
	if letter, ok := lastLetter(fields); ok {
		return letter, true
	}
	for k := len(fields) - 1; k >= 0; k-- {
		letter := strings.Trim(fields[k], "().,:;*$")
		if len(letter) != 1 || letter[0] < 'A' || letter[0] > 'J' {
			continue
		}
		before, after := strings.ToLower(strings.Join(fields[max(0, k-1):k], " ")), strings.ToLower(strings.Join(fields[k+1:min(len(fields), k+4)], " "))
		switch {
		case len(fields) == 2 && wording.Concludes(s) && strings.Contains(fields[k], "("), (before == "is" || before == "equals" || before == "be") && after == "":
			return letter, true
		case before == "option", before == "choice", before == "leaves", before == "leaving", before == "choose", before == "pick", before == "select", strings.HasPrefix(after, "is the correct"), strings.HasPrefix(after, "is correct"), strings.HasPrefix(after, "is the answer"), strings.HasPrefix(after, "is the right"):
			return letter, true
		}
	}
	return "", false
}

// lastLetter returns the letter that ends a sentence if it is the only one: "The coin is
// in jar B."
func lastLetter(fields []string) (letter string, ok bool) {
	for k, f := range fields {
		if f = strings.Trim(f, "().,:;*$"); len(f) == 1 && f[0] > 'A' && f[0] <= 'H' {
			if letter != "" && letter != f {
				return "", false
			}
			letter, ok = f, k == len(fields)-1 && k > 0 && strings.Trim(fields[k-1], "*") != "not"
		}
	}
	return letter, ok
}

// wordsOnly reads the last sentence of a short response without numbers.
func wordsOnly(all []sentence) claim {
	for k := len(all) - 1; k >= 0; k-- {
		if !wording.IsChat(all[k].text) {
			return claim{readings: all[k].readings(), text: all[k].concluding()}
		}
	}
	return claim{}
}

// spelled returns the last number in words of a sentence.
func spelled(s string) (string, bool) {
	fields := strings.Fields(strings.ToLower(s))
	for k := len(fields) - 1; k >= 0; k-- {
		if !countsAt(fields, k) {
			continue
		}
		for k > 0 && (isNumberWord(fields[k-1]) || fields[k-1] == "one") {
			k--
		}
		end := k
		for end < len(fields) && !strings.ContainsAny(fields[end], "0123456789") {
			end++
		}
		return answer.Spelled(strings.Join(fields[k:end], " "))
	}
	return "", false
}

// countsAt reports whether the word at k is a number. "one" counts if it cannot be a
// pronoun: "exactly one", "is one", "one third".
func countsAt(fields []string, k int) bool {
	f := strings.Trim(fields[k], ".,*!")
	if isNumberWord(f) {
		return true
	}
	if f == "half" {
		return k+1 < len(fields) && (fields[k+1] == "a" || fields[k+1] == "an")
	}
	if f != "one" {
		return false
	}
	if k+3 < len(fields) && fields[k+1] == "and" && strings.HasPrefix(fields[k+3], "half") {
		return true
	}
	if k > 0 && k+1 < len(fields) && slices.Contains([]string{"has", "have", "had", "gets", "leaves", "costs", "takes"}, fields[k-1]) && answer.IsUnit(fields[k+1]) {
		return true
	}
	if k+1 < len(fields) {
		if text, ok := answer.Spelled("one " + fields[k+1]); ok && strings.HasPrefix(text, "1/") {
			return true
		}
	}
	return k > 0 && slices.Contains([]string{"exactly", "only", "just", "is"}, fields[k-1]) && (k+1 == len(fields) || !strings.HasPrefix(fields[k+1], "of"))
}

func isNumberWord(f string) bool {
	f, _, _ = strings.Cut(strings.Trim(f, ".,*!"), "-")
	_, ok := answer.Spelled(f)
	return ok && f != "one"
}

func hasNumberWord(s string) bool {
	return (wording.Concludes(s) || strings.Contains(s, ", so ")) && slices.ContainsFunc(strings.Fields(strings.ToLower(s)), isNumberWord)
}

// takesBack reports whether any sentence of text takes something back.
func takesBack(text string) bool {
	return slices.ContainsFunc(sentences(text), func(s sentence) bool { return wording.Corrects(s.text) })
}

// corrected returns the answer of the text that follows an answer, if that text takes
// the answer back and reaches its own conclusion.
func corrected(rest string) claim {
	all := sentences(rest[:min(len(rest), maxTail)])
	k := slices.IndexFunc(all, func(s sentence) bool { return wording.Corrects(s.text) })
	if k < 0 {
		return claim{}
	}
	for last := len(all) - 1; last > k; last-- {
		if s := all[last]; wording.Concludes(s.text) && len(s.candidates()) > 0 {
			return claim{readings: s.readings(), text: s.concluding()}
		}
	}
	return claim{}
}
