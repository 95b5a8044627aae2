package grade

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a part of a text, from lo up to hi.
type segment struct{ lo, hi int }

// maxMath is how long a piece of mathematics in a text may be, in bytes.
const maxMath = 4096

// mathSpans are the pieces of s between $…$, $$…$$, \(…\), \[…\] and in
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

// mathAt is the length of the mathematics that begins at i, or 0.
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
	}
	return 0
}

// dollarMath is the length of $…$ at the beginning of s, or 0 where the sign is
// one of money.
func dollarMath(s string) int {
	for j := 1; j < len(s); j++ {
		switch {
		case s[j] == '\\':
			j++
		case s[j] == '\n' && strings.HasPrefix(s[j:], "\n\n"):
			return 0
		case s[j] == '$':
			inside := s[1:j]
			money := isDigitAt(s, 1) && (s[j-1] == ' ' || isDigitAt(s, j+1) || prose(inside))
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

// prose reports whether s, outside of commands, has two words in a row.
func prose(s string) bool {
	run, words := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			for isLetterAt(s, i+1) {
				i++
			}
			if strings.HasPrefix(s[i+1:], "{") { // words in \text{} are its own
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

// sentence is part of a text, with the mathematics in it.
type sentence struct {
	text string
	lo   int       // where it begins in the text
	math []segment // relative to text
}

// sentences splits s at line ends and full stops outside of mathematics.
func sentences(s string) []sentence {
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
			found = append(found, sentence{text: s[begin:end], lo: begin, math: inside})
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
		case (c == '.' || c == '!' || c == '?') && stops(s, i):
			cut(i)
		}
	}
	cut(len(s))
	return found
}

// stops reports whether the sign before i ends a sentence.
func stops(s string, i int) bool {
	rest := strings.TrimLeft(s[i:min(len(s), i+8)], `*")'`)
	if rest != "" && rest[0] != ' ' && rest[0] != '\n' {
		return false
	}
	if s[i-1] != '.' {
		return true
	}
	before := s[max(0, i-6) : i-1]
	word := before[strings.LastIndexFunc(before, func(r rune) bool { return !unicode.IsLetter(r) && r != '.' })+1:]
	switch strings.ToLower(word) {
	case "mr", "mrs", "ms", "dr", "vs", "approx", "e.g", "i.e", "no", "st", "eq":
		return false
	case "p.m", "a.m":
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, " \n"))
		return rest == "" || unicode.IsUpper(next)
	}
	// A number that begins a line, as in "3. Add them", is a mark.
	line := s[strings.LastIndexByte(s[:i], '\n')+1 : i-1]
	return strings.TrimLeft(line, " *#0123456789") != "" || strings.Trim(line, " *#") == "" || rest == "" || rest[0] == '\n'
}

// inner is mathematics without its delimiters, and of several lines the last.
func inner(s string) string {
	s = strings.TrimSpace(s)
	for _, d := range [][2]string{{"$$", "$$"}, {`\(`, `\)`}, {`\[`, `\]`}, {"$", "$"}} {
		if len(s) >= len(d[0])+len(d[1]) && strings.HasPrefix(s, d[0]) && strings.HasSuffix(s, d[1]) {
			s = s[len(d[0]) : len(s)-len(d[1])]
			break
		}
	}
	if strings.Contains(s, "matrix}") || strings.Contains(s, "{array}") || strings.Contains(s, "{cases}") {
		return s
	}
	if strings.Contains(s, `\begin{`) || strings.Contains(s, "&") {
		for strings.Contains(s, `\end{`) {
			s = s[:strings.LastIndex(s, `\end{`)]
		}
		rows := strings.Split(s, `\\`)
		for len(rows) > 1 && strings.TrimSpace(rows[len(rows)-1]) == "" {
			rows = rows[:len(rows)-1]
		}
		s = rows[len(rows)-1]
		if _, rest, ok := strings.Cut(s, `\begin{`); ok {
			_, s, _ = strings.Cut(rest, "}")
		}
		s = strings.ReplaceAll(s, "&", " ")
	}
	return s
}
