package markup

import (
	"encoding/json"
	"strings"

	"github.com/easyrl/easyrl/reward/grade/expr"
)

// maxFormula bounds a token of a formula without delimiters, in bytes.
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

// Undecorated returns s without commands that only change how it looks: colours, boxes around
// parts and circles.
func Undecorated(s string) string {
	s = strings.TrimSuffix(strings.TrimRight(s, " "), `\checkmark`)
	for _, name := range []string{`\color`, `\textcolor`, `\colorbox`, `\fcolorbox`, `\enclose`, `\bbox`, `\style`,
		`\class`, `\mathcolor`} {
		for tries := 0; tries < maxBoxes; tries++ {
			at := strings.Index(s, name)
			if at < 0 || at+len(name) < len(s) && expr.LetterAt(s, at+len(name)) {
				break
			}
			rest := strings.TrimLeft(s[at+len(name):], " ")
			switch n := 0; {
			case strings.HasPrefix(rest, "["):
				n = strings.IndexByte(rest, ']') + 1
				rest = rest[n:]
			case strings.HasPrefix(rest, "{"):
				rest = rest[expr.Braces(rest):]
			}
			if name == `\fcolorbox` && strings.HasPrefix(rest, "{") {
				rest = rest[expr.Braces(rest):]
			}
			s = s[:at] + rest
		}
	}
	return s
}

// Quoted decodes the JSON string at the start of s, as in {"answer": "5"}, and returns
// the length of its literal.
func Quoted(s string) (string, int, bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", 0, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			if rest := strings.TrimLeft(s[i+1:], " \n"); rest == "" || strings.IndexByte(",}]", rest[0]) < 0 {
				return "", 0, false
			}
			var inside string
			if json.Unmarshal([]byte(s[:i+1]), &inside) != nil {
				inside = s[1:i]
			}
			return inside, i + 1, strings.TrimSpace(inside) != ""
		}
	}
	return "", 0, false
}
