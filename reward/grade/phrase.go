package grade

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// titled returns the last phrase "the answer is X", "Answer: X" or a title "Answer" with X
// below it, where X is alone. A phrase without X at the end of the text is cut off.
func titled(s string) mark { return phrased(s, true) }

// said is like titled, but X may be part of a sentence.
func said(s string) mark { return phrased(s, false) }

// phrased returns the last phrase that announces an answer. With alone set, nothing but the answer may
// follow the announcement.
func phrased(text string, alone bool) mark {
	lower := folded(text)
	found := announcements(lower)
	for _, i := range found[:min(len(found), maxPhrases)] {
		if expr.LetterAt(lower, i-1) || strings.HasPrefix(lower[i:], "answer") &&
			expr.LetterAt(lower, i+len("answer")) && !strings.HasPrefix(lower[i:], "answers") ||
			words.Begins(lower[i:], "answered", "answering", "answerable") {
			continue
		}
		if i > 0 && (text[i-1] == '<' || text[i-1] == '/' || strings.HasPrefix(text[i:], "answer>")) { // a tag
			continue
		}
		begin, ok := payload(text, i)
		lead := lastClause(text[:i])
		if !ok || !leads(lead) || words.HasNegation(lower[i:begin]) || strings.Contains(lower[i:begin], " would ") &&
			strings.Contains(strings.ToLower(lead), "if ") ||
			words.Contains(lower[i:begin], " could ", " might ", " may ") {
			continue
		}
		for begin < len(text) && (strings.IndexByte(" \n:*=_`", text[begin]) >= 0 ||
			strings.IndexByte("#>", text[begin]) >= 0 && text[begin-1] == '\n' &&
				strings.IndexByte(" #", text[min(begin+1, len(text)-1)]) >= 0) {
			begin++
		}
		if begin == len(text) {
			if strings.TrimSpace(strings.Trim(lower[i:], "*_ \n")) == "answer" {
				continue
			}
			return mark{end: begin, ok: true, cut: true}
		}
		if text[begin] == '}' {
			continue
		}
		says := [2]string{lead, text[i:begin]}
		if inside, n, ok := markup.Quoted(text[begin:min(len(text), begin+maxMark)]); ok {
			return mark{text: inside, says: says, end: begin + n, ok: true}
		}
		x := clause(text, begin)
		if key := strings.TrimRight(text[max(0, i-9):i], "final_"); strings.HasSuffix(key,
			`"`) { // "answer": 88 in JSON
			x = x[:len(x)-len(strings.TrimLeft(x, "-.0123456789"))]
		}
		if begin+len(x) < len(text) && text[begin+len(x)] == '?' {
			continue
		}
		body := strings.TrimRight(strings.TrimSpace(unreasoned(x)), "*_` ")
		body = body[leading(body):]
		if words.Begins(strings.ToLower(body), "not ", "no longer ", "never ") {
			continue
		}
		if alone && (!isAlone(body, maxWords) || comments(lead, body)) {
			continue
		}
		return mark{text: body, says: says, end: begin + len(x), ok: true}
	}
	return mark{}
}

// unreasoned returns a clause without a reason or a comment in words after its value: ", since
// 7 · 8 = 56", ", I have checked it".
func unreasoned(s string) string {
	for _, word := range []string{"since ", "because ", "as "} {
		for _, sep := range []string{", ", " ("} {
			if head, _, ok := strings.Cut(s, sep+word); ok {
				s = head
			}
		}
	}
	s, _, _ = strings.Cut(s, " because ")
	for _, sep := range []string{", ", " ("} {
		head, comment, ok := strings.Cut(s, sep)
		if _, number := expr.Parse(markup.Clean(head), expr.Mode{Thousands: true}); ok && number &&
			words.HasDigit(head) &&
			len(strings.Fields(comment)) > 1 && !words.HasDigit(comment) && !strings.ContainsAny(comment, `\$=<>`) &&
			!words.Hedges(comment) && !words.Contains(strings.ToLower(comment), "or ", "than", "but", "and ") {
			return head
		}
	}
	return s
}

// comments reports whether a phrase only speaks of an answer that another place gives: "this answer
// is consistent with 4".
func comments(lead, body string) bool {
	if lead = strings.ToLower(strings.TrimRight(lead, " ")); words.Ends(lead, "this", "that", "which") {
		return true
	}
	word := words.First(body)
	return len(word) > 1 && word == strings.ToLower(word) && strings.Trim(word,
		"abcdefghijklmnopqrstuvwxyz,.") == "" && !strings.HasPrefix(word, "sqrt")
}

// leads reports whether the words before "answer" in its clause only introduce it: none denies, doubts or
// bounds what follows.
func leads(lead string) bool {
	lead = lead[strings.LastIndexAny(lead, ",;:")+1:]
	return !slices.ContainsFunc(words.Split(strings.ToLower(lead), "'"), words.Bends)
}

// leading returns the length in bytes of the connectives that open an answer, such as "therefore" and "is
// equal to".
func leading(s string) int {
	at := 0
	for at < len(s) {
		end := at
		for end < len(s) && s[end] != ' ' {
			end++
		}
		switch strings.ToLower(strings.Trim(s[at:end], ",:*")) {
		case "", "therefore", "thus", "hence", "then", "so", "simply", "just", "exactly", "indeed", "now", "also",
			"still", "given", "by", "equal", "to", "is", "precisely":
		default:
			return at
		}
		for at = end; at < len(s) && s[at] == ' '; at++ {
		}
	}
	return at
}

// maxPhrases bounds the announcements that phrased tries, the last one first.
const maxPhrases = 64

// announcements returns the offsets of the words that announce an answer, the last one first.
func announcements(lower string) (found []int) {
	for _, word := range []string{"answer", "correct option", "correct choice", "ans:", "ans.", "ans =", "ответ:",
		"答案:", "答案是", "答え:", "respuesta:", "réponse:", "réponse :", "antwort:", "resposta:"} {
		for at := 0; ; at += len(word) {
			n := strings.Index(lower[at:], word)
			if n < 0 {
				break
			}
			at += n
			found = append(found, at)
		}
	}
	slices.Sort(found)
	slices.Reverse(found)
	return found
}

// payload returns the offset of the answer that the word at i announces: after a colon, "is" and the like,
// or on the line after a title. ok is false if no answer follows.
func payload(text string, i int) (begin int, ok bool) {
	j := i
	for j < len(text) && strings.IndexByte(" :*\n=,.!", text[j]) < 0 {
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
			title := text[strings.LastIndexByte(text[:i], '\n')+1 : j]
			return j + 1, len(title) < 40 && !strings.ContainsFunc(title, unicode.IsDigit) && entitles(title)
		case c == '.' || c == '?' || c == '!' || c == ';':
			return 0, false
		case c == ' ' || c == '*':
			word = j + 1
		case c == ',':
			if word < j && strings.TrimSpace(text[word:j]) == "" {
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
	return len(text), j == len(text) && len(text)-i < 40
}

// entitles reports whether a title only says that the answer follows: "Final answer".
func entitles(title string) bool {
	const plain expr.Names = "final answer answers the my our correct short summary of"
	return !slices.ContainsFunc(words.Split(strings.ToLower(title), ""),
		func(word string) bool { return !plain.Has(word) })
}

// called returns the last phrase "X is the answer" or "X as our answer", where X is alone.
func called(text string) mark {
	lower := folded(text)
	for end, tries := len(lower), 0; tries < 16; tries++ {
		i := strings.LastIndex(lower[:end], "answer")
		if i < 0 {
			break
		}
		end = i
		rest := strings.TrimLeft(lower[i+len("answer"):], "*_ ")
		if rest != "" && strings.IndexByte(".!\n,;", rest[0]) < 0 {
			continue
		}
		sentence := lastClause(text[:i])
		if strings.Count(sentence, "$")%2 == 1 { // a full stop within a formula
			line := text[max(0, i-maxLead):i]
			sentence = line[strings.LastIndexByte(line, '\n')+1:]
		}
		begin := i - len(sentence)
		for _, verb := range []string{" is the ", " is our ", " is my ", " as the ", " as our ", " as my "} {
			at := strings.LastIndex(sentence, verb)
			if at < 0 || !words.OneOf(strings.ToLower(strings.Trim(sentence[at+len(verb):], "*_ ")), "", "final",
				"correct", "right", "required") {
				continue
			}
			body := strings.TrimSpace(sentence[:at])
			body = strings.TrimSpace(body[leading(body):])
			for _, lead := range []string{"we give ", "we get ", "we have ", "we find ", "we obtain ", "this gives ",
				"I give ", "that "} {
				body = strings.TrimPrefix(body, lead)
			}
			body = strings.Trim(body, "*_ ")
			if isAlone(body, maxWords) {
				return mark{text: body, end: begin + len(sentence), ok: true}
			}
		}
	}
	return mark{}
}

// clause returns the text at begin up to the end of its sentence or line, outside formulas.
func clause(text string, begin int) string {
	rest := text[begin:min(len(text), begin+maxMark)]
	for _, pair := range [][2]string{{"$$", "$$"}, {`\[`, `\]`}, {`\begin{`, `\end{`}, {"```", "```"}} {
		if after, ok := strings.CutPrefix(rest, pair[0]); ok {
			if n := strings.Index(after, pair[1]); n >= 0 {
				end := len(pair[0]) + n + len(pair[1])
				line, _, _ := strings.Cut(rest[end:], "\n")
				if strings.TrimSpace(strings.Trim(line, ".*$")) == "" || pair[0] == `\begin{` {
					return rest[:end+len(line)]
				}
				return rest[:end]
			}
		}
	}
	depth := 0
	dollars := false
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\n' && (!dollars && depth <= 0 || strings.HasPrefix(rest[i:], "\n\n") ||
			!strings.Contains(rest[i:], "$") && depth <= 0):
			return rest[:i]
		case c == '\n':
		case c == '\\':
			if i+1 < len(rest) {
				switch rest[i+1] {
				case '(', '[':
					depth++
				case ')', ']':
					depth--
				}
			}
			i++
		case c == '$':
			dollars = !dollars
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth < 0 { // of a box around the phrase
				return rest[:i]
			}
		case strings.IndexByte(".!?", c) < 0 || depth > 0 || dollars && strings.Contains(rest[i:], "$"):
		case i+1 == len(rest):
			return rest[:i]
		case strings.IndexByte(" \n*<\"", rest[i+1]) < 0 && rest[i+1] < utf8.RuneSelf:
		case c == '!' && i > 0 && expr.DigitAt(rest, i-1) && rest[i+1] == ' ' && i+2 < len(rest) &&
			strings.IndexByte("=+-*/", rest[i+2]) >= 0:
		case c == '.' && abbreviates(rest[:i], rest[i+1:]):
		default:
			return rest[:i]
		}
	}
	return rest
}

// abbreviates reports whether a full stop after s ends an abbreviation or the letter of a
// choice, as in "p.m.", "i.e." and "C. 42". rest follows it.
func abbreviates(s, rest string) bool {
	word := s[strings.LastIndexAny(s, " \n*")+1:]
	switch strings.ToLower(word) {
	case "p.m", "a.m", "i.e", "e.g", "approx", "sq", "cu", "no", "vs", "mr", "mrs", "dr", "st", "ft", "lb", "lbs",
		"oz", "hr", "min":
		return true
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.TrimSpace(s) == word && len(word) == 1 && word[0] >= 'A' && word[0] <= 'J' &&
		len(strings.Fields(rest)) <= 4
}

// The bounds on the words that may stand beside the mathematics of an answer that is alone: maxBare in a
// response without a mark, maxWords elsewhere.
const (
	maxBare  = 2
	maxWords = 5
)

// isAlone reports whether a text is nothing but an answer: one line of mathematics or a few
// words, and no sentence. beside bounds the words next to mathematics.
func isAlone(s string, beside int) bool {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxMark {
		return false
	}
	spans := markup.Spans(s)
	at, count, prose := 0, 0, 0
	for _, span := range append(spans, markup.Span{Lo: len(s), Hi: len(s)}) {
		between := s[at:span.Lo]
		if strings.Contains(strings.Trim(between, " \n$*.`\\[]()"), "\n") {
			return false
		}
		for _, f := range strings.Fields(between) {
			word := strings.Trim(f, ".,;:!?()[]{}$*_\"'`✅✓")
			if words.HasLetter(word) {
				count++
				if words.OneOf(strings.ToLower(word), "is", "are", "was", "were", "has", "have", "had", "will", "can",
					"cannot", "because", "since", "which", "that", "there", "he", "she", "they", "we", "i", "this",
					"gets", "makes", "pays", "costs") {
					prose++
				}
			}
		}
		at = span.Hi
	}
	if len(spans) == 0 {
		beside = maxWords
	}
	return count <= beside && prose == 0
}
