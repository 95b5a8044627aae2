// Package sentence splits a text into sentences, finds the values in them, and decides which
// value a sentence is about.
package sentence

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/reward/grade/expr"
	"github.com/easyrl/easyrl/reward/grade/markup"
	"github.com/easyrl/easyrl/reward/grade/words"
)

// Span is a part of a text, from lo up to hi.
type Span struct{ Lo, Hi int }

// maxMath bounds a piece of mathematics in a text, in bytes.
const maxMath = 4096

// mathSpans returns the pieces of s between $…$, $$…$$, \(…\), \[…\] and in
// environments, delimiters included.
func mathSpans(s string) []Span {
	var found []Span
	for i := 0; i < len(s); {
		n := mathAt(s, i)
		if n > 0 {
			found = append(found, Span{i, i + n})
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
		return markup.Formula(window)
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
			money := expr.DigitAt(s, 1) && (s[j-1] == ' ' || expr.DigitAt(s, j+1) || words.Prose(inside) || strings.Contains(inside, "\n"))
			if money || inside == "" || words.Prose(inside) && !strings.Contains(inside, `\`) {
				return 0
			}
			return j + 1
		}
	}
	return 0
}

// Sentence is a part of a text, with the mathematics in it.
type Sentence struct {
	Text string
	Lo   int        // offset in the text
	math []Span     // relative to text
	past []Sentence // sentences before a conclusion
	memo *[]Value
}

// Split splits s at line ends and at full stops outside mathematics.
func Split(s string) []Sentence { return split(s, false) }

// After returns s as a sentence that follows the sentences before it.
func (s Sentence) After(before []Sentence) Sentence {
	s.past = before
	return s
}

// Formulas returns the mathematics of s without delimiters.
func (s Sentence) Formulas() (all []string) {
	for _, span := range s.math {
		all = append(all, inner(s.Text[span.Lo:span.Hi]))
	}
	return all
}

// Continue splits text[lo:hi], which may begin within a line. The offsets of its sentences
// count from lo.
func Continue(text string, lo, hi int) []Sentence {
	return split(text[lo:hi], lo > 0 && text[lo-1] != '\n')
}

// split splits s, which continues a line if mid is set.
func split(s string, mid bool) []Sentence {
	var found []Sentence
	spans := mathSpans(s)
	begin, next := 0, 0
	var inside []Span
	cut := func(end int) {
		if strings.TrimSpace(s[begin:end]) != "" {
			for i := range inside {
				inside[i].Lo -= begin
				inside[i].Hi -= begin
			}
			found = append(found, Sentence{Text: s[begin:end], Lo: begin, math: inside, memo: new([]Value)})
		}
		begin, inside = end, nil
	}
	for i := 0; i < len(s); {
		if next < len(spans) && spans[next].Lo == i {
			inside = append(inside, spans[next])
			i = spans[next].Hi
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

// maxLabel bounds a label at the start of a line, in bytes.
const maxLabel = 160

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
		return rest == "" || !expr.DigitAt(strings.TrimLeft(rest, " "), 0)
	case "mr", "mrs", "ms", "dr", "vs", "approx", "e.g", "i.e", "no", "st", "eq":
		return false
	case "p.m", "a.m":
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, " \n"))
		return rest == "" || unicode.IsUpper(next)
	}
	// A number that begins a line, as in "3. Add them", is a label.
	from := max(0, i-maxLabel)
	begin := from + strings.LastIndexByte(s[from:i], '\n') + 1
	if begin == from && (from == 0 && mid || from > 0 && s[from-1] != '\n') {
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
