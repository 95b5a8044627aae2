package grade

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/answer"
	"github.com/easyrl/easyrl/reward/grade/expr"
)

// The bounds on what of a response is looked at, in bytes from its end.
const (
	maxTail  = 1 << 16 // for phrases
	maxFinal = 1 << 12 // for the sentence that concludes
)

// Correct reports whether response, with all its reasoning, gives the answer
// want. Of several answers the one given last counts; one inside <think>, or cut
// off by the end of the response, is none. The answer want may itself be a
// solution with its answer boxed or behind ####.
func Correct(response, want string) bool {
	want = expected(want)
	for _, got := range Extract(response) {
		if answer.Equal(want, got) {
			return true
		}
	}
	return false
}

// Equal reports whether got, an answer alone, says the same as want.
func Equal(want, got string) bool { return answer.Equal(want, got) }

// expected is the answer that a data set's field has, alone.
func expected(want string) string {
	if _, after, ok := strings.Cut(want, "####"); ok {
		return strings.TrimSpace(after)
	}
	if list, _, ok := answer.Boxed(want); ok {
		return list
	}
	if all := sentences(want[:min(len(want), maxFinal)]); len(want) > 100 && len(all) > 1 {
		if found := Extract(want); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return want
}

// Extract finds the answer in a response: ways to read one answer, not several
// answers. It is empty where the response gives none.
func Extract(response string) []string {
	text := Final(response)
	if cut := unclosed(text); cut >= 0 { // the response ended within it
		text = text[:cut]
		if _, _, ok := answer.Boxed(text); !ok {
			return nil
		}
	}
	at, readings := explicit(text)
	if len(readings) == 0 {
		return conclusion(text)
	}
	if later := corrected(text[at:]); len(later) > 0 {
		return later
	}
	return readings
}

// unclosed is where a \boxed or a \frac begins that a response ends in, or -1.
func unclosed(text string) int {
	for _, name := range []string{`\boxed`, `\frac`, `\dfrac`, `\sqrt`} {
		cut := strings.LastIndex(text, name+"{")
		if cut >= 0 && (name == `\boxed` || len(text)-cut < 100 && !strings.Contains(text[cut:], "\n")) && answer.Braces(text[cut+len(name):]) == 0 {
			return cut
		}
	}
	return -1
}

// explicit is the answer that is marked as one, and where its mark ends.
func explicit(text string) (end int, readings []string) {
	tail := text[max(0, len(text)-maxTail):]
	skip := len(text) - len(tail)
	if list, at, ok := answer.Boxed(text); ok {
		end, readings = at, read1(list)
	}
	if i, line := marked(tail); i >= 0 && skip+i > end {
		end, readings = skip+i, append(read1(line), mainOf(line)...)
	}
	if i := strings.LastIndex(tail, "<answer>"); i >= 0 && skip+i > end-maxMath {
		inside, _, _ := strings.Cut(tail[i+len("<answer>"):], "</answer>")
		if found := Extract(inside); len(found) > 0 {
			return skip + i + len("<answer>") + len(inside), append(found, inside)
		}
	}
	if at, found := phrase(tail, len(readings) > 0, end-skip); len(found) > 0 {
		end, readings = skip+at, found
	}
	return end, readings
}

// marked is the line behind the last "####" and where it ends, or -1. Of several
// numbers that are each marked, with no correction between them, it is the first:
// a base model went on with the next question.
func marked(s string) (int, string) {
	at, found := -1, ""
	for end, tries := len(s), 0; tries < 64; tries++ {
		i := strings.LastIndex(s[:end], "####")
		if i < 0 {
			break
		}
		for end = i; end > 0 && s[end-1] == '#'; end-- {
		}
		line, _, _ := strings.Cut(strings.TrimLeft(s[i+4:], " #"), "\n")
		alone := strings.Trim(line, "$\\ -.,0123456789") == "" && strings.ContainsAny(line, "0123456789")
		switch {
		case strings.TrimSpace(line) == "" || strings.Contains(line, "nswer"):
		case at < 0:
			at, found = i+4+len(line), line
			if !alone {
				return at, found
			}
		case alone && !takesBack(s[i+4+len(line):at]):
			at, found = i+4+len(line), line
		}
	}
	return at, found
}

// read1 is an answer that stands alone, and where it is a sentence what the
// sentence is about.
func read1(s string) []string {
	for _, mode := range []expr.Mode{{Thousands: true}, {}} {
		if _, ok := expr.Parse(answer.Clean(s), mode); ok {
			if all := sentences(s); len(all) == 1 { // "They have 25 apples"
				if found := all[0].candidates(); len(found) == 1 && prose(s[:found[0].lo]) {
					return append([]string{s}, all[0].main()...)
				}
			}
			return []string{s}
		}
	}
	if strings.ContainsAny(s, "<>≤≥≠") {
		return []string{s}
	}
	return append([]string{s}, mainOf(answer.BareText(s))...)
}

func mainOf(s string) []string {
	if all := sentences(s); len(all) > 0 {
		return all[0].main()
	}
	return nil
}
