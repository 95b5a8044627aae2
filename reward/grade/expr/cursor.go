package expr

import "strings"

// cursor is a position in a text.
type cursor struct {
	s  string
	at int
}

func (c *cursor) done() bool { return c.at >= len(c.s) }

// rest returns the text from the cursor on.
func (c *cursor) rest() string { return c.s[c.at:] }

// take consumes the next n bytes and returns them.
func (c *cursor) take(n int) string {
	c.at += n
	return c.s[c.at-n : c.at]
}

// accept consumes text if it is next.
func (c *cursor) accept(text string) bool {
	if !strings.HasPrefix(c.rest(), text) {
		return false
	}
	c.at += len(text)
	return true
}

// word consumes a run of letters.
func (c *cursor) word() string { return c.take(lettersAt(c.s, c.at)) }

// digits consumes a run of digits.
func (c *cursor) digits() string { return c.take(digitsAt(c.s, c.at)) }

func (c *cursor) skipSpaces() { c.take(len(c.rest()) - len(strings.TrimLeft(c.rest(), " "))) }

// braced consumes the next brace group and returns its contents.
func (c *cursor) braced() (string, bool) {
	look := *c
	look.skipSpaces()
	n := Braces(look.rest())
	if n == 0 {
		return "", false
	}
	c.at = look.at + n
	return c.s[look.at+1 : c.at-1], true
}

// Braces returns the length in bytes of the brace group at the start of s, or 0. A group longer than
// maxText counts as unclosed.
func Braces(s string) int {
	depth := 0
	for i := 0; i < min(len(s), maxText) && (i > 0 || s[0] == '{'); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// DigitAt reports whether s has a digit at at, which may lie outside s.
func DigitAt(s string, at int) bool { return at >= 0 && at < len(s) && s[at] >= '0' && s[at] <= '9' }

// LetterAt reports whether s has an ASCII letter at at, which may lie outside s.
func LetterAt(s string, at int) bool {
	return at >= 0 && at < len(s) && (s[at] >= 'a' && s[at] <= 'z' || s[at] >= 'A' && s[at] <= 'Z')
}

// digitsAt returns the length of the run of digits at at.
func digitsAt(s string, at int) int { return runAt(s, at, DigitAt) }

// lettersAt returns the length of the run of letters at at.
func lettersAt(s string, at int) int { return runAt(s, at, LetterAt) }

func runAt(s string, at int, is func(string, int) bool) int {
	n := 0
	for is(s, at+n) {
		n++
	}
	return n
}
