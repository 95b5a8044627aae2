package grade

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/sentence"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// The bounds on how much of a response is read, in bytes from its end.
const (
	maxTail  = 1 << 16 // for phrases
	maxFinal = 1 << 12 // for the concluding sentence
	maxLead  = 160     // before a mark, in its sentence
	maxMark  = 1 << 12 // behind a mark
)

// Equal reports whether got, a bare answer, equals want.
func Equal(want, got string) bool { return answer.Equal(want, got) }

// Bare returns the answer that a data set's field states: the answer of the solution in it, or
// the field itself.
func Bare(want string) string {
	if _, after, ok := strings.Cut(want, "####"); ok {
		return strings.TrimSpace(after)
	}
	if answer.IsBlock(want) {
		return want
	}
	if list, _, ok := markup.Boxed(want); ok {
		return list
	}
	if all := sentence.Split(want[:min(len(want), maxFinal)]); len(want) > 100 && len(all) > 1 {
		if found := Extract(want); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return want
}

// claim is what a response states as its answer.
type claim struct {
	readings []string // alternative readings of one answer, not several answers
	text     string   // inside the mark, or the sentence that concludes
	lead     string   // before the mark in its sentence
	marked   bool
}

// Extract finds the answer in a response. The result holds alternative readings of one
// answer, not several answers. It is empty if the response gives no answer.
func Extract(response string) []string { return find(response).readings }

// find returns what a response claims.
func find(response string) claim {
	text := Final(response)
	if cut := unclosed(text); cut >= 0 { // the response ended inside it
		text = text[:cut]
		if _, _, ok := markup.Boxed(text); !ok {
			return claim{}
		}
	}
	at, found := explicit(text)
	if len(found.readings) == 0 {
		if breaksOff(text) {
			return claim{}
		}
		return conclusion(text)
	}
	if later := corrected(text[at:]); len(later.readings) > 0 {
		return later
	}
	return found
}

// unclosed returns the offset of the \boxed or \frac that the response breaks off in,
// or -1.
func unclosed(text string) int {
	for _, name := range []string{`\boxed`, `\frac`, `\dfrac`, `\sqrt`} {
		cut := strings.LastIndex(text, name+"{")
		if cut >= 0 && (name == `\boxed` || len(text)-cut < 100 && !strings.Contains(text[cut:], "\n")) && markup.Braces(text[cut+len(name):]) == 0 {
			return cut
		}
	}
	return -1
}

// explicit returns the marked answer and the offset where its mark ends.
func explicit(text string) (end int, found claim) {
	tail := text[max(0, len(text)-maxTail):]
	skip := len(text) - len(tail)
	if list, at, ok := markup.Boxed(text); ok {
		end, found = at, stated(list)
		found.lead = lastClause(text[:max(0, strings.LastIndex(text[:at], `boxed`))])
	}
	if i, line := marked(tail); i >= 0 && skip+i > end {
		end, found = skip+i, stated(line)
	}
	if i := strings.LastIndex(tail, "<answer>"); i >= 0 {
		inside, _, _ := strings.Cut(tail[i+len("<answer>"):], "</answer>")
		at := skip + i + len("<answer>") + len(inside)
		_, _, boxed := markup.Boxed(inside)
		marks := boxed || strings.Contains(strings.TrimSpace(inside), "\n") || words.Contains(inside, "nswer", "####")
		switch {
		case at < end || strings.TrimSpace(inside) == "":
		case joinsTags(tail[:i], inside) || listsLines(inside):
			return at, claim{readings: []string{"?"}}
		case marks && strings.Contains(inside, " or "):
			return at, claim{readings: []string{"?"}}
		case marks:
			return at, find(inside)
		default:
			return at, stated(inside)
		}
	}
	if at, said := phrase(tail, len(found.readings) > 0, end-skip); len(said.readings) > 0 {
		end, found = skip+at, said
	}
	return end, found
}

// lastClause returns the end of text from its last full stop or line end on.
func lastClause(text string) string {
	text = text[max(0, len(text)-maxLead):]
	return text[strings.LastIndexAny(text, ".\n!?")+1:]
}

// stated returns what the text of a mark claims.
func stated(s string) claim { return claim{readings: readMark(s), text: s, marked: true} }

// marked returns the line after the last "####" and the offset where it ends, or -1.
func marked(s string) (int, string) {
	for end, tries := len(s), 0; tries < 64; tries++ {
		i := strings.LastIndex(s[:end], "####")
		if i < 0 {
			break
		}
		for end = i; end > 0 && s[end-1] == '#'; end-- {
		}
		line, _, _ := strings.Cut(strings.TrimLeft(s[i+4:], " #"), "\n")
		if strings.TrimSpace(line) != "" && !strings.Contains(line, "nswer") {
			return i + 4 + len(line), line
		}
	}
	return -1, ""
}

// joinsTags reports whether text ends in the tag of another answer than inside, or in such a tag
// and a word that offers another.
func joinsTags(text, inside string) bool {
	between := text[strings.LastIndex(text, ">")+1:]
	head, tagged := strings.CutSuffix(text[:len(text)-len(between)], "</answer>")
	if !tagged || strings.TrimSpace(between) != "" {
		return tagged && markup.Joins(between)
	}
	_, other, ok := words.CutLast(head, "<answer>")
	return ok && len(other) <= maxMark && !answer.SameValue(other, inside)
}

// listsLines reports whether each line of a short text is a bare number, and they differ.
func listsLines(s string) bool {
	fields := strings.Split(strings.TrimSpace(s), "\n")
	differ := false
	for _, f := range fields {
		if f = strings.TrimSpace(f); f == "" || strings.Trim(f, "-$0123456789.,/") != "" {
			return false
		}
		differ = differ || f != strings.TrimSpace(fields[0])
	}
	return differ
}
