package answer

import "strings"

// Rows is s without what LaTeX's ends of rows say of the space behind them: \\ for
// \\[4pt], \\* and \\*[1ex].
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
