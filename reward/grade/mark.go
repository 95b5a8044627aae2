package grade

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// The bounds on how much of a response is read, in bytes.
const (
	maxTail = 1 << 16 // at its end, where marks other than boxes count
	maxMark = 1 << 12 // in the text of a mark other than a box
	maxLead = 160     // before a mark, in its sentence
)

// mark is what a response states as its answer.
type mark struct {
	text string    // what the mark holds
	lead string    // the text before it in its sentence
	says [2]string // the words before and after "answer" in its phrase
	end  int       // offset after it
	ok   bool      // the response has a mark
	box  bool      // the mark is a \boxed or the like
	cut  bool      // the response breaks off inside the mark
}

// later returns m, or other if it ends later.
func (m mark) later(other mark) mark {
	if other.ok && (!m.ok || other.end >= m.end) {
		return other
	}
	return m
}

// find returns the last mark of a text: a box, a line after ####, a tag or a phrase that
// says "answer". A text that is nothing but an answer is itself a mark.
func find(text string) mark {
	skip := max(0, len(text)-maxTail)
	tail := text[skip:]
	found := boxed(text)
	for _, m := range []mark{hashes(tail), tagged(tail), titled(tail), called(tail)} {
		m.end += skip
		found = found.later(m)
	}
	if !found.ok {
		found = said(tail)
	}
	if found.ok && !found.cut {
		return found.inner()
	}
	if body := strings.TrimSpace(text); !found.ok && isAlone(body, maxBare) {
		return mark{text: strings.TrimPrefix(body, "A: "), end: len(text), ok: true}
	}
	return found
}

// inner returns the mark inside the text of m if there is one, or m.
func (m mark) inner() mark {
	if !words.Contains(m.text, "box", "####", "<answer>", "nswer") {
		return m
	}
	if at := strings.Index(m.text, `\boxed`); m.box && at >= 0 { // a box in a box
		if inside, end, ok := markup.Boxed(m.text); ok && strings.Trim(m.text[:at]+m.text[end:], ` $,.{}\`) != "" {
			m.text = m.text[:at] + " , " + inside
			return m
		}
	}
	text := m.text
	if m.box {
		text = markup.Bare(text)
		if strings.Contains(m.text, "box") {
			text = m.text
		}
	}
	if in := find(text); in.ok && len(in.text) < len(m.text) {
		in.end = m.end
		return in
	}
	return m
}

// boxed returns the last box. Boxes that only commas and conjunctions separate are one.
func boxed(text string) mark {
	list, end, ok := markup.Boxed(text)
	if at := markup.Unclosed(text); at >= end {
		return mark{end: at, ok: true, cut: true}
	}
	if !ok {
		return mark{}
	}
	at := max(0, strings.LastIndex(text[:end], `box`))
	if strings.HasSuffix(list, " , ") { // the last one is empty
		return mark{end: end, ok: true, cut: true}
	}
	if lo := strings.LastIndex(text[:max(0, at-1)], `\boxed{`); lo >= 0 { // perhaps around the last one
		open := lo + len(`\boxed`)
		switch n := expr.Braces(text[open:]); {
		case open+n > end:
			list, end, at = text[open+1:open+n-1], open+n, lo+1
		case n == 0 && strings.Trim(text[open:at], `{ $\f`) == "":
			return mark{end: end, ok: true, cut: true}
		}
	}
	return mark{text: list, lead: lastClause(strings.TrimRight(text[:at], `\fram`)), end: end, ok: true, box: true}
}

// lastClause returns the end of text from its last full stop or line end on.
func lastClause(text string) string {
	text = text[max(0, len(text)-maxLead):]
	for end := len(text); ; {
		end = strings.LastIndexAny(text[:end], ".\n!?")
		if end > 0 && text[end] == '!' && text[end-1] == '\\' { // a space in LaTeX
			continue
		}
		if end < 0 || text[end] == '\n' || end+1 == len(text) || text[end+1] == ' ' || text[end+1] == '*' {
			return text[end+1:]
		}
	}
}

// hashes returns the line after the last ####. A title in words with text below it is no answer:
// "#### Verification".
func hashes(s string) mark {
	for end, tries := len(s), 0; tries < 64; tries++ {
		i := strings.LastIndex(s[:end], "####")
		if i < 0 {
			break
		}
		begin := i + len("####")
		for end = i; end > 0 && s[end-1] == '#'; end-- {
		}
		line, below, _ := strings.Cut(s[begin:], "\n")
		m := mark{text: strings.Trim(line, " #\t\r"), end: begin + len(line), ok: true}
		switch {
		case m.text == "" && strings.TrimSpace(below) == "": // the line is still to come
			m.cut = true
			return m
		case m.text == "", strings.TrimSpace(below) != "" && isTitle(m.text):
			continue
		}
		return m
	}
	return mark{}
}

// isTitle reports whether a line after #### is the title of what follows: words without a
// number, or a numbered step.
func isTitle(line string) bool {
	line = strings.Trim(line, "* ")
	if len(strings.Fields(line)) > 1 && words.Begins(line, "Step", "Case", "Part", "Answer", "Final", "Check") ||
		strings.HasSuffix(line, ":") {
		return true
	}
	if words.HasDigit(line) || strings.ContainsAny(line, `\$=`) {
		return false
	}
	return len(strings.Fields(line)) > 1 || words.OneOf(line, "Verification", "Explanation", "Solution", "Conclusion",
		"Check", "Notes", "Note", "Answer", "Summary", "Reasoning")
}

// tagged returns the last <answer>…</answer>.
func tagged(s string) mark {
	const open, end = "<answer>", "</answer>"
	lower := folded(s)
	if strings.Contains(lower, "final_answer>") {
		lower = strings.NewReplacer("<final_answer>", "      <answer>", "</final_answer>",
			"</answer>      ").Replace(lower)
	}
	i := strings.LastIndex(lower, open)
	if i < 0 {
		return mark{}
	}
	begin := i + len(open)
	n := strings.Index(lower[begin:], end)
	if n < 0 {
		return mark{end: begin, ok: true, cut: true}
	}
	m := mark{text: s[begin : begin+n], end: begin + n + len(end), ok: true}
	if strings.TrimSpace(m.text) == "" {
		return mark{}
	}
	if before, ok := tagBefore(s[max(0, i-maxMark):i], lower[max(0, i-maxMark):i]); ok &&
		before != strings.TrimSpace(m.text) {
		m.text = before + " , " + m.text // several in a row are one list
	}
	return m
}

// tagBefore returns the contents of the tag at the end of s, where a conjunction may follow it:
// "<answer>4</answer> and". lower is s in lower case.
func tagBefore(s, lower string) (string, bool) {
	head, between, ok := words.CutLast(lower, "</answer>")
	if !ok || strings.TrimSpace(between) != "" && !markup.Joins(between) {
		return "", false
	}
	at := strings.LastIndex(head, "<answer>")
	if at < 0 {
		return "", false
	}
	return strings.TrimSpace(s[at+len("<answer>") : len(head)]), true
}

// folded returns s in lower case, or s itself if that would change its length: offsets must stay valid.
func folded(s string) string {
	if lower := strings.ToLower(s); len(lower) == len(s) {
		return lower
	}
	return s
}
