package grade

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/answer"
)

// segment is a part of a text, from lo up to hi.
type segment struct{ lo, hi int }

// maxMath bounds a piece of mathematics in a text, in bytes.
const maxMath = 4096

// mathSpans returns the pieces of s between $…$, $$…$$, \(…\), \[…\] and in
// environments, delimiters included.
func mathSpans(s string) []segment {
	var found []segment
	for i := 0; i < len(s); {
		n := mathAt(s, i)
		if n > 0 {
			found = append(found, segment{i, i + n})
			i += n
			continue
		}
		if s[i] == '\\' || strings.HasPrefix(s[i:], "$$") {
			i++
		}
		i++
	}
	return found
}

// mathAt returns the length of the mathematics at i, or 0.
func mathAt(s string, i int) int {
	window := s[i:min(len(s), i+maxMath)]
	closed := func(open, end string) int {
		if n := strings.Index(window[len(open):], end); n >= 0 {
			return len(open) + n + len(end)
		}
		return 0
	}
	switch {
	case strings.HasPrefix(window, `\(`):
		return closed(`\(`, `\)`)
	case strings.HasPrefix(window, `\[`):
		return closed(`\[`, `\]`)
	case strings.HasPrefix(window, `\begin{`):
		name, _, ok := strings.Cut(window[len(`\begin{`):], "}")
		if !ok || len(name) > 16 {
			return 0
		}
		return closed(`\begin{`+name+`}`, `\end{`+name+`}`)
	case strings.HasPrefix(window, "$$"):
		return closed("$$", "$$")
	case window[0] == '$':
		return dollarMath(window)
	case i == 0 || strings.IndexByte(" =(*\n", s[i-1]) >= 0:
		return answer.Formula(window)
	}
	return 0
}

// dollarMath returns the length of $…$ at the start of s, or 0 if the sign is a
// currency.
func dollarMath(s string) int {
	for j := 1; j < len(s); j++ {
		switch {
		case s[j] == '\\':
			j++
		case s[j] == '\n' && strings.HasPrefix(s[j:], "\n\n"):
			return 0
		case s[j] == '$':
			inside := s[1:j]
			money := isDigitAt(s, 1) && (s[j-1] == ' ' || isDigitAt(s, j+1) || prose(inside) || strings.Contains(inside, "\n"))
			if money || inside == "" || prose(inside) && !strings.Contains(inside, `\`) {
				return 0
			}
			return j + 1
		}
	}
	return 0
}

func isDigitAt(s string, i int) bool { return i >= 0 && i < len(s) && s[i] >= '0' && s[i] <= '9' }

func isLetterAt(s string, i int) bool {
	return i >= 0 && i < len(s) && (s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z')
}

// prose reports whether s has two consecutive words outside commands.
func prose(s string) bool {
	run, words := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			for isLetterAt(s, i+1) {
				i++
			}
			if strings.HasPrefix(s[i+1:], "{") { // skip words in \text{}
				if end := strings.IndexByte(s[i+1:], '}'); end > 0 {
					i += end
				}
			}
			run, words = 0, 0
		case isLetterAt(s, i):
			if run++; run == 2 {
				words++
			}
		case s[i] == ' ':
			run = 0
		default:
			run, words = 0, 0
		}
		if words >= 2 {
			return true
		}
	}
	return false
}

// sentence is a part of a text, with the mathematics in it.
type sentence struct {
	text string
	lo   int        // offset in the text
	math []segment  // relative to text
	past []sentence // sentences before a conclusion
	memo *[]candidate
}

// sentences splits s at line ends and at full stops outside mathematics.
func sentences(s string) []sentence { return split(s, false) }

// split splits s, which continues a line if mid is set.
func split(s string, mid bool) []sentence {
	var found []sentence
	spans := mathSpans(s)
	begin, next := 0, 0
	var inside []segment
	cut := func(end int) {
		if strings.TrimSpace(s[begin:end]) != "" {
			for i := range inside {
				inside[i].lo -= begin
				inside[i].hi -= begin
			}
			found = append(found, sentence{text: s[begin:end], lo: begin, math: inside, memo: new([]candidate)})
		}
		begin, inside = end, nil
	}
	for i := 0; i < len(s); {
		if next < len(spans) && spans[next].lo == i {
			inside = append(inside, spans[next])
			i = spans[next].hi
			next++
			continue
		}
		i++
		switch c := s[i-1]; {
		case c == '\n':
			cut(i)
		case (c == '.' || c == '!' || c == '?') && stops(s, i, mid):
			cut(i)
		}
	}
	cut(len(s))
	return found
}

// stops reports whether the sign before i ends a sentence.
func stops(s string, i int, mid bool) bool {
	rest := strings.TrimLeft(s[i:min(len(s), i+8)], `*")'`)
	if rest != "" && rest[0] != ' ' && rest[0] != '\n' {
		return false
	}
	if s[i-1] != '.' {
		return i < 2 || s[i-2] != '\\'
	}
	before := s[max(0, i-6) : i-1]
	word := before[strings.LastIndexFunc(before, func(r rune) bool { return !unicode.IsLetter(r) && r != '.' })+1:]
	switch strings.ToLower(word) {
	case "ft", "lb", "lbs", "hr", "hrs", "oz", "min":
		return rest == "" || !isDigitAt(strings.TrimLeft(rest, " "), 0)
	case "mr", "mrs", "ms", "dr", "vs", "approx", "e.g", "i.e", "no", "st", "eq":
		return false
	case "p.m", "a.m":
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, " \n"))
		return rest == "" || unicode.IsUpper(next)
	}
	// A number that begins a line, as in "3. Add them", is a label.
	begin := strings.LastIndexByte(s[:i], '\n') + 1
	if mid && begin == 0 {
		return true
	}
	line := s[begin : i-1]
	return strings.TrimLeft(line, " *#0123456789") != "" || strings.Trim(line, " *#") == "" || rest == "" || rest[0] == '\n'
}

// inner strips the delimiters of mathematics and returns the last of several lines.
func inner(s string) string {
	s = strings.TrimSpace(s)
	for _, d := range [][2]string{{"$$", "$$"}, {`\(`, `\)`}, {`\[`, `\]`}, {"$", "$"}} {
		if len(s) >= len(d[0])+len(d[1]) && strings.HasPrefix(s, d[0]) && strings.HasSuffix(s, d[1]) {
			s = s[len(d[0]) : len(s)-len(d[1])]
			break
		}
	}
	return lastRow(s)
}

// lastRow returns the last line of multi-line mathematics, such as an align
// environment, without alignment marks. Environments inside a line stay whole.
func lastRow(s string) string {
	s = strings.TrimSpace(s)
	if name, body, ok := strings.Cut(strings.TrimPrefix(s, `\begin{`), "}"); ok && strings.HasPrefix(s, `\begin{`) && isLines(name) {
		end := strings.LastIndex(body, `\end{`+name+`}`)
		if end < 0 {
			return s
		}
		return lastRow(body[:end])
	}
	row, depth := "", 0
	for rest := s; ; {
		i := strings.Index(rest, `\`)
		switch {
		case i < 0 || i+1 >= len(rest):
			if row += rest; strings.TrimSpace(row) == "" {
				return s
			}
			head, environment, ok := strings.Cut(row, `\begin{`)
			if head = strings.ReplaceAll(head, "&", " "); ok {
				return head + `\begin{` + environment
			}
			return head
		case strings.HasPrefix(rest[i:], `\begin{`):
			depth++
		case strings.HasPrefix(rest[i:], `\end{`):
			depth--
		case rest[i+1] == '\\' && depth == 0 && strings.TrimSpace(rest[i+2:]) != "":
			row, rest = "", rest[i+2:]
			continue
		case rest[i+1] == '\\' && depth == 0:
			rest = rest[:i]
			continue
		}
		row, rest = row+rest[:i+2], rest[i+2:]
	}
}

// isLines reports whether an environment holds lines of mathematics.
func isLines(name string) bool {
	switch strings.TrimSuffix(name, "*") {
	case "align", "aligned", "gather", "gathered", "equation", "eqnarray", "split", "multline", "alignat":
		return true
	}
	return false
}
