package answer

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Rows removes the spacing arguments of LaTeX row ends from s: \\[4pt], \\* and
// \\*[1ex] become \\.
func Rows(s string) string {
	if !strings.Contains(s, `\\`) {
		return s
	}
	var b strings.Builder
	for {
		head, rest, found := strings.Cut(s, `\\`)
		b.WriteString(head)
		if !found {
			return b.String()
		}
		b.WriteString(`\\`)
		if !strings.HasPrefix(rest, "**") {
			rest = strings.TrimPrefix(rest, "*")
		}
		if n := strings.IndexByte(rest[:min(len(rest), 40)], ']'); n > 0 && isLength(rest[:n+1]) {
			b.WriteByte(' ')
			rest = rest[n+1:]
		}
		s = rest
	}
}

// lines returns the lines of a text that are not blank, without the marks of a block of
// code and of mathematics.
func lines(s string) (all []string) {
	if _, body, ok := strings.Cut(s, `\begin{`); ok && strings.Count(s, `\begin`) == 1 {
		_, body, _ = strings.Cut(body, "}")
		if strings.HasPrefix(body, "{") { // the columns of an array
			_, body, _ = strings.Cut(body, "}")
		}
		body, _, _ = strings.Cut(body, `\end{`)
		s = strings.ReplaceAll(body, "&", " ")
	}
	s = strings.ReplaceAll(s, `\\`, "\n")
	for line := range strings.Lines(strings.NewReplacer("$$", "", `\[`, "", `\]`, "").Replace(spaced(s))) {
		if line = strings.TrimSpace(line); strings.Trim(line, "*`") != "" && !strings.HasPrefix(line, "```") {
			all = append(all, line)
		}
	}
	return all
}

// IsBlock reports whether a reference answer has several lines, each of which counts.
func IsBlock(want string) bool {
	return strings.Contains(strings.TrimSpace(want), "\n") && !strings.ContainsAny(want, "\\{") && len(lines(want)) > 1
}

// LastLines returns as many lines from the end of text as want has.
func LastLines(text, want string) string {
	all := lines(text)
	return strings.Join(all[max(0, len(all)-len(lines(want))):], "\n")
}

// sameBlock compares answers of several lines, line by line: the same numbers and words,
// in whatever case and spacing.
func sameBlock(want, got string) bool {
	a, b := lines(want), lines(got)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !slices.Equal(cells(a[i]), cells(b[i])) {
			return false
		}
	}
	return true
}

// cells returns the numbers and words of a line.
func cells(line string) []string {
	line = strings.TrimRight(strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(strings.Trim(line, "`$ "), "**"), "**")), ".")
	return strings.Fields(strings.NewReplacer(",", " , ", "|", " | ").Replace(line))
}

// spaced returns s with plain spaces for those of LaTeX.
func spaced(s string) string {
	return strings.NewReplacer(`\quad`, " ", `\qquad`, " ", `\ `, " ", `\;`, " ", `\,`, " ", `\:`, " ", "~", " ", `\!`, "").Replace(s)
}

// sameJSON compares lists of texts and nested lists by their structure. ok is false if the
// reference answer is none.
func sameJSON(w, g string) (same, ok bool) {
	var want, got any
	if w[0] != '[' && w[0] != '{' || !strings.ContainsAny(w[1:], `[{"`) || json.Unmarshal([]byte(w), &want) != nil {
		return false, false
	}
	if strings.Contains(g, `\begin{`) { // a matrix
		return false, false
	}
	if json.Unmarshal([]byte(g), &got) != nil && json.Unmarshal([]byte(strings.ReplaceAll(g, "'", `"`)), &got) != nil {
		return false, true
	}
	return reflect.DeepEqual(want, got), true
}

// series returns the items of an answer that lists numbers with nothing but spaces
// between them.
func series(s string) ([]string, bool) {
	fields := strings.Fields(spaced(s))
	if len(fields) < 2 {
		return nil, false
	}
	if len(fields) > 2 && !slices.ContainsFunc(fields, func(f string) bool { return len(f) != 1 || !unicode.IsLetter(rune(f[0])) }) {
		return fields, true // letters
	}
	for _, f := range fields {
		if strings.Trim(strings.TrimPrefix(f, "-"), "0123456789.") != "" || !strings.ContainsAny(f, "0123456789") {
			return nil, false
		}
	}
	return fields, true
}

// sameSeries reports whether g lists the items, with spaces or commas between them and
// perhaps in brackets.
func sameSeries(items []string, g string) bool {
	g = strings.TrimSpace(strings.NewReplacer(`\text{ and }`, " ", `\text{and}`, " ", " and ", " ").Replace(BareText(spaced(g))))
	for _, pair := range []string{"()", "[]"} {
		if len(g) > 1 && g[0] == pair[0] && g[len(g)-1] == pair[1] {
			g = g[1 : len(g)-1]
		}
	}
	for i := range g { // 12,345 is one number
		if g[i] == ',' && i > 0 && i+3 < len(g) && isDigit(g[i-1]) && isDigit(g[i+1]) && isDigit(g[i+2]) && isDigit(g[i+3]) {
			return false
		}
	}
	return slices.Equal(items, strings.FieldsFunc(g, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }))
}

// isLength reports whether s is a length in brackets: [4pt], [-0.5em], [\jot].
func isLength(s string) bool {
	inside, ok := strings.CutPrefix(strings.TrimSpace(s), "[")
	inside = strings.Trim(strings.TrimSuffix(inside, "]"), " +-.0123456789")
	if !ok || inside == "" {
		return false
	}
	if name, ok := strings.CutPrefix(inside, `\`); ok {
		return strings.HasSuffix(name, "skip") || strings.HasSuffix(name, "sep") || name == "jot"
	}
	return strings.Contains(" pt mm cm em ex in pc bp mu sp dd cc ", " "+inside+" ")
}

// Formula returns the length of the LaTeX formula at the start of s, without delimiters
// and without a space outside braces, such as 2\sqrt{3} or \frac{1}{2}. It returns 0 if
// the formula has no fraction or root.
func Formula(s string) int {
	if s == "" || s[0] != '\\' && s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return 0
	}
	depth, end, seen := 0, 0, false
	for ; end < min(len(s), maxMeasure); end++ {
		c := s[end]
		if c == '\\' && depth == 0 {
			seen = seen || strings.HasPrefix(s[end:], `\frac{`) || strings.HasPrefix(s[end:], `\dfrac{`) || strings.HasPrefix(s[end:], `\sqrt{`)
		}
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case depth == 0 && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && strings.IndexByte(`\^_+-`, c) < 0:
			if !seen {
				return 0
			}
			return end
		}
		if depth < 0 {
			return 0
		}
	}
	if !seen || depth > 0 || end < len(s) {
		return 0
	}
	return end
}
