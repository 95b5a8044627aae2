// Package markup finds and removes the LaTeX and Markdown around an answer.
package markup

import (
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// maxBoxes bounds the boxes that form one list, and the tries to find one.
const maxBoxes = 64

// Boxed returns the contents of the last \boxed{…} and the offset of its end. It joins
// boxes that only commas and conjunctions separate into one list.
func Boxed(s string) (string, int, bool) {
	last, lo, hi, ok := lastBox(s, len(s))
	if !ok {
		return "", 0, false
	}
	list := []string{last}
	for begin := lo; len(list) < maxBoxes; {
		inside, from, to, more := lastBox(s, begin)
		if !more || to > begin || begin-to > 60 || !links(s[to:begin]) {
			break
		}
		list = append([]string{inside}, list...)
		begin = from
	}
	return strings.Join(list, " , "), hi, true
}

// links reports whether the text between two boxes joins them into one answer.
func links(between string) bool {
	if strings.ContainsAny(between, ".\n") {
		return false
	}
	if strings.TrimSpace(Spaced(between)) == "" || Joins(between) {
		return true
	}
	fields := strings.Fields(strings.NewReplacer(`\text{`, " ", "}", " ", "$", " ", `\quad`, " ", `\)`, " ", `\(`,
		" ").Replace(between))
	return len(fields) > 0 && (fields[len(fields)-1] == "and" || fields[len(fields)-1] == "or")
}

// lastBox finds the last complete box before end.
func lastBox(s string, end int) (inside string, lo, hi int, ok bool) {
	for tries := 0; tries < maxBoxes; {
		at := strings.LastIndex(s[:end], "box")
		if at < 0 {
			break
		}
		end = at
		open := at + len("box")
		switch {
		case at >= 1 && s[at-1] == '\\' && strings.HasPrefix(s[open:], "ed"):
			lo, open = at-1, open+2
		case at >= 2 && s[at-2:at] == `\f`:
			lo = at - 2
		case strings.HasSuffix(s[:at], `\frame`):
			lo = at - len(`\frame`)
		default:
			continue
		}
		tries++
		name := open
		for open < len(s) && s[open] == ' ' {
			open++
		}
		switch {
		case open < len(s) && s[open] == '{':
			if n := expr.Braces(s[open:]); n > 0 {
				return s[open+1 : open+n-1], lo, open + n, true
			}
		case open > name && open < len(s): // \boxed 42
			if n := strings.IndexAny(s[open:min(len(s), open+100)], "$\n"); n > 0 {
				return s[open : open+n], lo, open + n, true
			}
		}
	}
	return "", 0, 0, false
}

// Joins reports whether only a comma or a conjunction separates two parts of one
// answer. The name of the next part may follow, as in "and x =".
func Joins(between string) bool {
	between = strings.NewReplacer(`\text{`, " ", `\quad`, " ", `\(`, " ", `\)`, " ", "}", " ", "$", " ", "*", " ", `\`,
		" ", ";", ",").Replace(between)
	if head, ok := strings.CutSuffix(strings.TrimSpace(between), "="); ok {
		head = strings.TrimSpace(head)
		at := strings.LastIndexAny(head, " ,") + 1
		if name := head[at:]; len(name) > 6 || name == "" || strings.IndexByte("0123456789$+-", name[0]) >= 0 {
			return false
		}
		between = head[:at]
	}
	switch strings.Join(strings.Fields(between), " ") {
	case "and", "or", ",", ", and", ", or", "and also":
		return true
	}
	return false
}

// Unclosed returns the offset of the last box that the text breaks off in, or -1.
func Unclosed(s string) int {
	at := -1
	for _, name := range []string{`\boxed`, `\fbox`, `\framebox`} {
		if i := strings.LastIndex(s, name); i > at {
			rest := strings.TrimLeft(s[i+len(name):], " \n")
			if rest == "" || rest[0] == '{' && expr.Braces(rest) == 0 {
				at = i
			}
		}
	}
	tail := s[max(0, len(s)-len(`\frameboxed`)):]
	if i := strings.LastIndexByte(tail, '\\'); i >= 0 && len(tail)-i > 2 && (strings.HasPrefix(`\boxed`, tail[i:]) ||
		strings.HasPrefix(`\fbox`, tail[i:])) {
		at = len(s) - len(tail) + i
	}
	return at
}
