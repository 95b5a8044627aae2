package syntax

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// maxDigits is the maximum number of digits of an integer literal. It keeps literals far
// below the limit of package py, so that py.Integer cannot raise.
const maxDigits = 1000

// number reads an integer or a float.
func (l *lexer) number(rest string) {
	// run returns the end of digits of a set, with single underscores between them.
	run := func(at int, set string) int {
		digit := func(i int) bool { return i < len(rest) && strings.IndexByte(set, rest[i]) >= 0 }
		for digit(at) || at < len(rest) && rest[at] == '_' && digit(at+1) {
			at++
		}
		return at
	}
	const decimal = "0123456789"
	// After a dot, digits are an index: x.0.1 has two indices and no float.
	afterDot := len(l.tokens) > 0 && l.tokens[len(l.tokens)-1].kind == "." && l.pos > 0 && l.src[l.pos-1] == '.'
	end := run(0, decimal)
	float := false
	if !afterDot {
		if end+1 < len(rest) && rest[end] == '.' && strings.IndexByte(decimal, rest[end+1]) >= 0 {
			end, float = run(end+1, decimal), true
		}
		if end < len(rest) && rest[end]|0x20 == 'e' {
			at := end + 1
			if at < len(rest) && (rest[at] == '+' || rest[at] == '-') {
				at++
			}
			if at < len(rest) && strings.IndexByte(decimal, rest[at]) >= 0 {
				end, float = run(at, decimal), true
			}
		}
	}
	if float {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(rest[:end], "_", ""), 64) // infinity if too large
		l.tokens = append(l.tokens, token{kind: kindFloat, text: rest[:end], value: f, line: l.line})
		l.advance(end)
		return
	}
	base := 10
	if rest[0] == '0' && len(rest) > 1 {
		sets := map[byte]string{'x': "0123456789abcdefABCDEF", 'o': "01234567", 'b': "01"}
		set := sets[rest[1]|0x20] // by the prefix in lower case
		if set != "" && run(2, set) > 2 {
			end = run(2, set)
			base = 0 // SetString reads the prefix
		} else {
			end = run(0, "0") // 07 is two numbers
		}
	}
	if end > maxDigits {
		l.fail("integer has %d digits, expected at most %d", end, maxDigits)
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(rest[:end], "_", ""), base)
	if !ok {
		l.fail("unexpected number %s", quote(rest[:end]))
	}
	l.tokens = append(l.tokens, token{kind: kindInteger, text: rest[:end], value: py.Integer(n), line: l.line})
	l.advance(end)
}

// quoted reads a string literal.
func (l *lexer) quoted(rest string, quoteChar byte) {
	end := 1
	for end < len(rest) && rest[end] != quoteChar {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		l.fail("unexpected char %s at %d", `"`+rest[:1]+`"`, py.Runes(l.src[:l.pos]))
	}
	value := l.unescape(rest[1:end])
	l.tokens = append(l.tokens, token{kind: kindString, text: rest[1:end], value: value, line: l.line})
	l.advance(end + 1)
}

// unescape resolves a literal's backslashes, as in a Python string.
func (l *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for {
		at := strings.IndexByte(s, '\\')
		if at < 0 || at+1 == len(s) {
			return b.String() + s
		}
		b.WriteString(s[:at])
		c := s[at+1]
		s = s[at+2:]
		if i := strings.IndexByte(`ntrabfv\'"`, c); i >= 0 {
			b.WriteByte("\n\t\r\a\b\f\v\\'\""[i])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case c == '\n': // a continued line
		case c >= '0' && c <= '7': // up to three octal digits
			n := rune(c - '0')
			for i := 0; i < 2 && s != "" && s[0] >= '0' && s[0] <= '7'; i++ {
				n = n*8 + rune(s[0]-'0')
				s = s[1:]
			}
			b.WriteRune(n)
		case c == 'N':
			l.fail("unknown Unicode character name")
		case digits > 0:
			n, err := strconv.ParseUint(s[:min(digits, len(s))], 16, 32)
			if err != nil || len(s) < digits || n > utf8.MaxRune {
				l.fail("truncated \\%cXX escape", c)
			}
			b.WriteRune(rune(n))
			s = s[digits:]
		default: // not an escape
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
}
