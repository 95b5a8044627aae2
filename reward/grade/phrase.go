package grade

import (
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// phrase reads the answer after the last "the answer is" and returns the offset where
// it ends. After another mark, which ends at after, it counts only if the answer
// follows at once.
func phrase(text string, marked bool, after int) (int, claim) {
	lower := strings.ToLower(text)
	if len(lower) != len(text) { // lower-casing changed a letter's length
		lower = text
	}
	weakAt, weak := 0, claim{}
	announced := announcements{}
	for end, tries := len(lower), 0; tries < 64; tries++ {
		i := announced.before(lower, end)
		if i < 0 || marked && i < after {
			break
		}
		end = i
		if strings.HasPrefix(lower[i:], "ans") && !strings.HasPrefix(lower[i:], "answer") && expr.LetterAt(lower, i-1) {
			continue // loans.
		}
		if word := lower[i:]; expr.LetterAt(word, len("answer")) && !words.Begins(word, "answers", "correct ") {
			continue // answered
		}
		begin, ok := payload(text, i)
		if !ok {
			continue
		}
		at, found, strong := answerAt(text, begin)
		if len(found.readings) == 0 {
			continue
		}
		if first := found.readings[0]; text[begin-1] == '=' && strings.ContainsAny(first, "*/+") && !strings.Contains(first, "=") { // code
			continue
		}
		if words.HasNegation(lower[i:begin]) {
			if _, after, ok := strings.Cut(found.text, " but "); ok {
				found.readings = mainOf(after)
			} else {
				found.readings = []string{"not " + found.readings[0]}
			}
		}
		found.lead = lastClause(text[:i])
		if strong && !strings.Contains(lower[i:begin], " would ") {
			if repeated(text, announced.before(lower, i), i, found.readings[0]) || doubted(lower[at:]) {
				found = claim{readings: []string{"?"}}
			}
			return at, found
		}
		if weak.readings == nil {
			weakAt, weak = at, found
		}
	}
	if marked {
		return 0, claim{}
	}
	return weakAt, weak
}

// repeated reports whether the words at last announce another value than value right before
// those at i announce value: "The answer is 27. The answer is 54."
func repeated(text string, last, i int, value string) bool {
	if last < 0 || i-last > 200 || words.Corrects(text[last:i]) {
		return false
	}
	begin, ok := payload(text, last)
	if !ok || begin >= i {
		return false
	}
	end, other, strong := answerAt(text[:i], begin)
	if !strong || len(other.readings) == 0 || len(strings.Fields(text[end:i])) > 2 {
		return false
	}
	return words.HasDigit(value) && words.HasDigit(other.readings[0]) && !answer.SameValue(other.readings[0], value)
}

// doubted reports whether the sentence after an answer, in lower case, offers another one.
func doubted(rest string) bool {
	if all := sentence.Split(rest[:min(len(rest), 200)]); len(all) > 0 {
		if next := strings.TrimLeft(all[0].Text, " \n*$"); strings.HasPrefix(next, "or ") && expr.DigitAt(strings.TrimLeft(next[3:], " $-"), 0) {
			return true
		}
		return words.Contains(all[0].Text, "could also be", "might also be", "but it could", "but it might", "one of those", "one of these", "one of them", "or maybe ", "or perhaps ", "another answer is")
	}
	return false
}

// announcements caches the last positions of words that announce an answer.
type announcements struct {
	last  [6]int
	known bool
}

// before returns the offset of the last announcing word before end, or -1. end must not
// increase between calls.
func (a *announcements) before(lower string, end int) int {
	at := -1
	for k, word := range [...]string{"answer", "correct option", "correct choice", "ans:", "ans.", "ans ="} {
		if !a.known || a.last[k] >= end {
			a.last[k] = strings.LastIndex(lower[:end], word)
		}
		at = max(at, a.last[k])
	}
	a.known = true
	return at
}

// payload returns the offset of the answer that the word at i announces: after a colon,
// "is" and the like, or on the line after a title.
func payload(text string, i int) (int, bool) {
	j := i
	for j < len(text) && text[j] != ' ' && text[j] != ':' && text[j] != '*' && text[j] != '\n' && text[j] != '=' && text[j] != ',' && text[j] != '.' && text[j] != '!' {
		j++
	}
	if strings.HasPrefix(strings.ToLower(text[i:]), "correct ") {
		j = i + len("correct option")
	}
	limit := min(len(text), j+90)
	word := j
	for j < limit {
		switch c := text[j]; {
		case c == ':' || c == '.' && j == i+3 || c == '=' && j < i+12:
			return j + 1, true
		case c == '-' && j < i+9 && strings.HasPrefix(text[j:], "- "):
			return j + 2, true
		case c >= '0' && c <= '9' || c == '=':
			return 0, false
		case c == '\n':
			title := strings.Trim(text[strings.LastIndexByte(text[:i], '\n')+1:j], "*#:_- ")
			return j + 1, len(title) < 24
		case c == '.' || c == '?' || c == '!' || c == ';':
			return 0, false
		case c == ' ' || c == '*':
			word = j + 1
		case c == ',':
			if strings.TrimSpace(text[word:j]) == "" {
				return 0, false
			}
			word = j + 1
		default:
			end := j
			for end < len(text) && unicode.IsLetter(rune(text[end])) {
				end++
			}
			if end > j && words.OneOf(text[j:end], "is", "are", "be", "equals") {
				return end, true
			}
			if end > j {
				j = end - 1
			}
		}
		j++
	}
	return 0, false
}

// answerAt reads the answer at begin. It returns the answer's end, what it claims, and
// whether it follows at once rather than somewhere in a sentence.
func answerAt(text string, begin int) (end int, found claim, strong bool) {
	for begin < len(text) && (strings.IndexByte(" \n:*=_#", text[begin]) >= 0 || text[begin] == '>' && text[begin-1] == '\n') {
		begin++
	}
	if inside, n, ok := markup.Quoted(text[begin:min(len(text), begin+maxMark)]); ok {
		return begin + n, stated(inside), true
	}
	all := sentence.Continue(text, begin, min(len(text), begin+2*maxMark))
	if len(all) == 0 {
		return 0, claim{}, false
	}
	s := all[0]
	end = begin + s.Lo + len(s.Text)
	body := strings.TrimRight(strings.TrimSpace(s.Text), "*")
	if list, _, ok := markup.Boxed(body); ok {
		return end, stated(list), true
	}
	readings, strong := follows(s, text, begin, body)
	return end, claim{readings: readings, text: body, marked: true}, strong
}

// follows returns the readings of the sentence s of text, which follows "the answer is"
// at begin, and whether the answer follows at once. body is the sentence without markup.
func follows(s sentence.Sentence, text string, begin int, body string) (readings []string, strong bool) {
	skip := words.Filler(body)
	if strings.HasPrefix(strings.ToLower(body[skip:]), "not ") {
		return nil, false
	}
	if _, ok := words.Choice(strings.Trim(words.First(body[skip:]), ".,*;:")); ok {
		if others(body[skip:]) || words.After(strings.TrimPrefix(body[skip:], words.First(body[skip:]))) != "" {
			return []string{body[skip:]}, true
		}
		return []string{body[skip:], strings.Trim(words.First(body[skip:]), ".,*;:")}, true
	}
	found := s.Values()
	if isCode(body) {
		return []string{body}, true
	}
	if whole := wholeSentence(text, begin, s); whole.Hedges() {
		return whole.Main(), true
	}
	if len(found) == 0 {
		if digits, ok := words.Spelled(body[skip:]); ok {
			return []string{body[skip:], digits}, true
		}
		return []string{body[skip:]}, begin > 0 && len(strings.Fields(body)) < 4 && strings.LastIndexByte(text[max(0, begin-3):begin], ':') >= 0
	}
	lead := strings.TrimSpace(strings.Trim(s.Text[:found[0].Lo], " *\n("))
	if readings = afterBut(s, found); len(readings) > 0 {
		return readings, true
	}
	if len(lead) <= skip || isNameEquals(lead) || strings.TrimSpace(body[:skip]) == lead || startsExpression(body[skip:]) {
		if computes(s, found) || strings.HasPrefix(s.Text[found[0].Hi:], " to the power") {
			return append(s.Main(), body[skip:]), true
		}
		last := 0
		for last+1 < len(found) && markup.Joins(s.Text[found[last].Hi:found[last+1].Lo]) && !isSubject(s.Text[found[last+1].Hi:]) {
			last++
		}
		readings = []string{s.List(last + 1)}
		if words.After(s.Text[found[last].Hi:]) == "is not" {
			return readings, true
		}
		if last+1 < len(found) && !found[last+1].Aside && rivals(s.Text[found[last].Hi:found[last+1].Lo]) && !words.Restates(s.Text[found[last].Hi:found[last+1].Lo]) {
			return []string{body[skip:]}, true // 10 | 20
		}
		if isNameEquals(lead) || startsExpression(body[skip:]) || last == 0 {
			readings = append(readings, body[skip:])
		}
		return readings, true
	}
	return append(s.Main(), body[skip:]), begin > 1 && strings.HasSuffix(strings.TrimRight(text[:begin], " *\n"), ":")
}

// wholeSentence returns the full sentence that ends with s, which starts at begin.
func wholeSentence(text string, begin int, s sentence.Sentence) sentence.Sentence {
	if at := strings.LastIndexAny(text[:begin], ".\n") + 1; begin-at < maxMark {
		if around := sentence.Split(text[at:min(len(text), begin+len(s.Text))]); len(around) == 1 {
			return around[0]
		}
	}
	return s
}

// afterBut reads the part of a sentence after "but": "20, but it is 18".
func afterBut(s sentence.Sentence, found []sentence.Value) []string {
	k := strings.LastIndex(s.Text, " but ")
	if k <= found[0].Lo || found[len(found)-1].Lo < k {
		return nil
	}
	return sentence.Split(s.Text[k+len(" but"):])[0].Main()
}

// computes reports whether a sentence continues from its first candidate to a result:
// "32 sheep / 96 animals * 100% = 33%".
func computes(s sentence.Sentence, found []sentence.Value) bool {
	for _, c := range found[1:] {
		if c.Sum && strings.ContainsAny(s.Text[found[0].Hi:c.Lo], "*/+×÷") {
			return true
		}
	}
	return false
}

// isCode reports whether s is a call in a programming language: solve(32, x).
func isCode(s string) bool {
	name, _, ok := strings.Cut(s, "(")
	return ok && len(name) > 3 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == "" && !sentence.StartsFunction(name)
}

// isSubject reports whether the words after a value make it the subject of another
// clause or a comparison: "15, 8 more than before", "9, and 81 is its square".
func isSubject(after string) bool {
	word := words.First(after)
	return word == "is" || word == "are" || words.After(after) != ""
}

// others reports whether a chosen letter is followed by another one: "C or D".
func others(s string) bool {
	first, ok := words.Choice(strings.Trim(words.First(s), ".,*;:"))
	for i := 2; ok && i+2 < len(s); i++ {
		if s[i] == '(' && s[i+2] == ')' && s[i+1] >= 'A' && s[i+1] <= 'J' && s[i+1] != first {
			return true
		}
	}
	fields := strings.Fields(strings.NewReplacer("/", " / ", ",", " , ", "|", " | ").Replace(s))
	if len(fields) < 3 || !words.OneOf(fields[1], "or", "and", "/", ",", "|", "nor", "&", "vs") {
		return false
	}
	_, ok = words.Choice(strings.Trim(fields[2], ".,*"))
	return ok
}

// rivals reports whether only a sign such as | stands between two values.
func rivals(between string) bool {
	between = strings.NewReplacer(`\mid`, "|", `\vee`, "|", `\lor`, "|", `\to`, "|", "$", "", " ", "").Replace(between)
	return strings.Trim(between, "|/&~→;?") == ""
}

// isNameEquals reports whether s is a name and an equals sign: "x =", "(a, b) =".
func isNameEquals(s string) bool {
	head, ok := strings.CutSuffix(s, "=")
	return ok && len(strings.TrimSpace(head)) <= 24
}

// startsExpression reports whether s begins with mathematics rather than words.
func startsExpression(s string) bool {
	if s == "" {
		return false
	}
	if strings.IndexByte(`([{\$-+.√0123456789`, s[0]) >= 0 {
		return true
	}
	f := words.First(s)
	return len(f) == 1 && f != "a" && f != "I" && f != "A" || strings.HasPrefix(s, "sqrt")
}
