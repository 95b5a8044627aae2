package syntax

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Kinds of tokens. The kind of an operator is its text, such as "==".
const (
	kindData    = "data" // text outside tags
	kindName    = "name"
	kindString  = "string"
	kindInteger = "integer"
	kindFloat   = "float"
	kindBegin   = "block_begin"    // {%
	kindEnd     = "block_end"      // %}
	kindOpen    = "variable_begin" // {{
	kindClose   = "variable_end"   // }}
	kindEOF     = "eof"
)

type token struct {
	kind  string
	text  string
	value py.Value // value of a literal; nil for other kinds
	line  int      // from 1
}

// lexer splits a template into tokens with Hugging Face's settings: trim_blocks and
// lstrip_blocks.
type lexer struct {
	src       string
	pos       int  // offset in src
	line      int  // line of pos, from 1
	lineStart bool // pos is the start of a line
	tokens    []token
	closers   []byte // closing brackets that the open ones expect, innermost last
}

// lex returns the tokens of a template. It raises a syntax error.
func lex(source string) []token {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.text()
	}
	l.add(kindEOF, "")
	return l.tokens
}

func (l *lexer) add(kind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

func (l *lexer) fail(format string, args ...any) { fail(l.line, format, args...) }

// fail raises a syntax error.
func fail(line int, format string, args ...any) { py.RaiseAt(line, py.KindSyntax, format, args...) }

// advance moves past n bytes and counts their lines.
func (l *lexer) advance(n int) {
	if n > 0 {
		l.lineStart = l.src[l.pos+n-1] == '\n'
	}
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
}

// text reads data up to the next tag, and the tag.
func (l *lexer) text() {
	rest := l.src[l.pos:]
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.add(kindData, rest)
			l.advance(len(rest))
			return
		}
		at += i
		if c := rest[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	kind := rest[at+1] // '{', '%' or '#'
	sign := byte(0)    // '-' or '+' after the tag's start
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	if n := rawBegin(rest[at:]); n > 0 {
		l.data(rest[:at], sign, true)
		l.advance(at + n)
		l.raw()
		return
	}
	l.data(rest[:at], sign, kind != '{')
	l.advance(at + 2)
	if sign != 0 {
		l.advance(1)
	}
	switch kind {
	case '#':
		l.comment()
	case '%':
		l.add(kindBegin, "")
		l.tag("%}", kindEnd)
	default:
		l.add(kindOpen, "")
		l.tag("}}", kindClose)
	}
}

// data adds the text before a tag. The sign - removes all white space before the tag.
// Without a sign, lstrip_blocks removes the white space between the start of the line and a
// block tag; + keeps it.
func (l *lexer) data(text string, sign byte, block bool) {
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, py.IsSpace)
	case sign != '+' && block:
		begin := strings.LastIndexByte(text, '\n') + 1
		if (begin > 0 || l.lineStart) && strings.TrimLeftFunc(text[begin:], py.IsSpace) == "" {
			text = text[:begin]
		}
	}
	if text != "" {
		l.add(kindData, text)
	}
}

// rawBegin returns the length of a {% raw %} at the start of s, or 0.
func rawBegin(s string) int {
	rest, ok := strings.CutPrefix(s, "{%")
	if !ok {
		return 0
	}
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		rest = rest[1:]
	}
	rest, ok = strings.CutPrefix(skipSpace(rest), "raw")
	rest = skipSpace(rest)
	if after, cut := strings.CutPrefix(rest, "-%}"); ok && cut {
		return len(s) - len(skipSpace(after))
	}
	if after, cut := strings.CutPrefix(rest, "%}"); ok && cut {
		return len(s) - len(after)
	}
	return 0
}

func skipSpace(s string) string { return strings.TrimLeftFunc(s, py.IsSpace) }

// raw reads up to the end of a raw block.
func (l *lexer) raw() {
	rest := l.src[l.pos:]
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			l.fail("Missing end of raw directive")
		}
		at += i
		tag := rest[at+2:]
		sign := byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign = tag[0]
			tag = tag[1:]
		}
		tag, ok := strings.CutPrefix(skipSpace(tag), "endraw")
		end := endLength(skipSpace(tag), "%}", blockTag)
		if !ok || end == 0 {
			continue
		}
		l.data(rest[:at], sign, true)
		l.advance(len(rest) - len(skipSpace(tag)) + end)
		return
	}
}

// Whether a tag consumes a newline after it (trim_blocks): blocks and comments do.
const (
	blockTag = true
	printTag = false
)

// endLength returns the length of the end of a tag at the start of s, with the white space
// that the tag consumes, or 0 if s starts with something else.
func endLength(s, end string, block bool) int {
	if rest, ok := strings.CutPrefix(s, "-"+end); ok {
		return len(s) - len(skipSpace(rest))
	}
	if block && strings.HasPrefix(s, "+"+end) {
		return 1 + len(end)
	}
	rest, ok := strings.CutPrefix(s, end)
	if !ok {
		return 0
	}
	if block {
		rest = strings.TrimPrefix(rest, "\n")
	}
	return len(s) - len(rest)
}

// comment reads up to the end of a comment, which becomes no token.
func (l *lexer) comment() {
	rest := l.src[l.pos:]
	at := strings.Index(rest, "#}")
	if at < 0 {
		l.fail("Missing end of comment tag")
	}
	if at > 0 && (rest[at-1] == '-' || rest[at-1] == '+') {
		at--
	}
	l.advance(at + endLength(rest[at:], "#}", blockTag))
}

// tag reads the tokens of a tag and its end, which becomes a token of a kind. Inside brackets,
// an end such as }} may be two brackets.
func (l *lexer) tag(end, kind string) {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		newline := printTag
		if kind == kindEnd {
			newline = blockTag
		}
		if n := endLength(rest, end, newline); n > 0 && len(l.closers) == 0 {
			l.add(kind, "")
			l.advance(n)
			return
		}
		if n := len(rest) - len(skipSpace(rest)); n > 0 {
			l.advance(n)
			continue
		}
		l.token(rest)
	}
}

// token reads the token that rest, the unread source, starts with.
func (l *lexer) token(rest string) {
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '"' || r == '\'':
		l.quoted(rest, byte(r))
	case r >= '0' && r <= '9':
		l.number(rest)
	case wordRune(r):
		end := strings.IndexFunc(rest, func(r rune) bool { return !wordRune(r) })
		if end < 0 {
			end = len(rest)
		}
		if !unicode.In(r, unicode.L, unicode.Nl) && r != '_' {
			l.fail("Invalid character in identifier")
		}
		l.add(kindName, rest[:end])
		l.advance(end)
	default:
		l.operator(rest)
	}
}

// wordRune reports whether r matches \w of a regular expression.
func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// operator reads an operator, a bracket or a separator.
func (l *lexer) operator(rest string) {
	n := 1
	switch rest[:min(2, len(rest))] {
	case "//", "**", "==", "!=", ">=", "<=":
		n = 2
	}
	c := rest[0]
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", c) < 0 && n == 1 {
		r, _ := utf8.DecodeRuneInString(rest)
		l.fail("unexpected char %s at %d", quote(string(r)), py.Runes(l.src[:l.pos]))
	}
	switch c {
	case '(':
		l.closers = append(l.closers, ')')
	case '[', '{':
		l.closers = append(l.closers, c+2) // in ASCII, ] and } follow [ and { at a distance of 2
	case ')', ']', '}':
		if len(l.closers) == 0 {
			l.fail("unexpected '%c'", c)
		}
		want := l.closers[len(l.closers)-1]
		l.closers = l.closers[:len(l.closers)-1]
		if want != c {
			l.fail("unexpected '%c', expected '%c'", c, want)
		}
	}
	l.add(rest[:n], rest[:n])
	l.advance(n)
}

func quote(s string) string { return "'" + s + "'" }
