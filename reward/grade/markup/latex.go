package markup

import "strings"

// maxFormula bounds a formula without delimiters, in bytes.
const maxFormula = 160

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
	for ; end < min(len(s), maxFormula); end++ {
		c := s[end]
		if c == '\\' && depth == 0 {
			seen = seen || strings.HasPrefix(s[end:], `\frac{`) || strings.HasPrefix(s[end:], `\dfrac{`) || strings.HasPrefix(s[end:], `\sqrt{`) || end == 0 && namesFunction(s)
		}
		switch {
		case c == '{', c == '(' && seen:
			depth++
		case c == '}', c == ')' && seen && depth > 0:
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

// namesFunction reports whether s begins with a function of parentheses: \log(.
func namesFunction(s string) bool {
	for _, name := range []string{"log", "ln", "sin", "cos", "tan"} {
		if strings.HasPrefix(s, `\`+name+"(") {
			return true
		}
	}
	return false
}
