package split

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// Where an escape occurs. \w is not the same inside brackets.
const (
	inBrackets  = true
	outBrackets = false
)

// escape parses the rest of an escape after its backslash. It does not apply (?i): outside of
// brackets, the flag applies only to escapes of a single character.
func (p *parser) escape(bracket bool) []ucd.Span {
	c := p.char()
	if i := strings.IndexRune("rntfvae", c); i >= 0 {
		c = rune("\r\n\t\f\v\a\x1b"[i])
		return []ucd.Span{{Lo: c, Hi: c}}
	}
	switch c {
	case 's', 'S', 'd', 'D', 'h', 'H', 'w', 'W':
		spans := p.shorthand(unicode.ToLower(c), bracket)
		if unicode.IsUpper(c) {
			return ucd.Complement(spans)
		}
		return spans
	case 'p', 'P':
		return p.property(c == 'P')
	case 'x', 'u':
		c = p.hex(c)
	default:
		if c >= utf8.RuneSelf || unicode.IsLetter(c) || unicode.IsDigit(c) {
			p.bad = true
		}
	}
	return []ucd.Span{{Lo: c, Hi: c}}
}

// shorthand returns the characters of \s, \d, \h or \w.
func (p *parser) shorthand(c rune, bracket bool) []ucd.Span {
	if c == 'w' && !bracket {
		return ucd.Word()
	}
	spans, _ := p.named(map[rune]string{'s': "space", 'd': "digit", 'h': "xdigit", 'w': "word"}[c])
	return spans
}

// hex parses the digits of \x41, \x{41} or \u0041, where c is x or u. It rejects \x80 and
// above, which are bytes rather than characters.
func (p *parser) hex(c rune) rune {
	digits, limit := "", rune(unicode.MaxRune)
	switch {
	case c == 'x' && p.take("{"):
		var ok bool
		digits, p.rest, ok = strings.Cut(p.rest, "}")
		p.bad = p.bad || !ok
	case c == 'x':
		digits, limit = p.rest[:min(len(p.rest), 2)], unicode.MaxASCII
		p.rest = p.rest[len(digits):]
	default:
		digits = p.rest[:min(len(p.rest), 4)]
		p.rest = p.rest[len(digits):]
	}
	n, err := strconv.ParseUint(digits, 16, 31)
	if err != nil || rune(n) > limit {
		p.bad = true
		return 0
	}
	return rune(n)
}

// property parses {L}, {^L} and the like, after \p or, with negate, after \P.
func (p *parser) property(negate bool) []ucd.Span {
	name, rest, ok := strings.Cut(p.rest, "}")
	if !ok || !strings.HasPrefix(name, "{") {
		p.bad = true
		return nil
	}
	p.rest = rest
	name, caret := strings.CutPrefix(name[1:], "^")
	spans, ok := p.named(name)
	p.bad = p.bad || !ok
	if negate != caret {
		return ucd.Complement(spans)
	}
	return spans
}

// named returns the characters of a property.
func (p *parser) named(name string) ([]ucd.Span, bool) {
	spans, ok := p.properties[name]
	if !ok {
		if spans, ok = ucd.Property(name); ok && p.properties != nil {
			p.properties[name] = spans
		}
	}
	return spans, ok
}

// class parses the rest of a character class after its opening bracket.
func (p *parser) class() []ucd.Span {
	p.depth++
	if p.depth > maxNesting {
		p.bad = true
	}
	negate := p.take("^")
	var spans []ucd.Span
	for first := true; !p.bad && (first || !p.take("]")); first = false {
		if p.take("&&") {
			p.bad = p.bad || p.rest == "" || p.rest[0] == '^' || p.rest[0] == ']'
			spans = intersection(ucd.Tidy(spans), p.class()) // class reads up to the bracket of both
			break
		}
		spans = append(spans, p.item(first)...)
	}
	p.depth--
	spans = ucd.Tidy(spans)
	if negate && p.fold { // before the complement: [^a] does not match A
		spans = p.folded(spans)
	}
	if negate {
		return ucd.Complement(spans)
	}
	return spans
}

// single reports whether spans are one character.
func single(spans []ucd.Span) bool { return len(spans) == 1 && spans[0].Lo == spans[0].Hi }

// folded adds the characters that differ only in case.
func (p *parser) folded(spans []ucd.Span) []ucd.Span {
	if p.cases == nil {
		p.cases = ucd.NewFolder()
	}
	return p.cases.Fold(spans)
}

// intersection returns the characters that are in both tidy lists.
func intersection(a, b []ucd.Span) []ucd.Span {
	return ucd.Complement(ucd.Tidy(append(ucd.Complement(a), ucd.Complement(b)...)))
}

// item parses an item of a class: a character, range, property or nested class. first means
// that it is the first one, where a hyphen is a character.
func (p *parser) item(first bool) []ucd.Span {
	switch c := p.char(); {
	case c == '[' && strings.HasPrefix(p.rest, ":"):
		return p.posix()
	case c == '[':
		return p.class()
	case c == '-' && !first && !strings.HasPrefix(p.rest, "]"):
		p.bad = true
		return nil
	case c == '\\':
		spans := p.escape(inBrackets)
		if !single(spans) {
			return spans
		}
		return []ucd.Span{p.span(spans[0].Lo)}
	default:
		return []ucd.Span{p.span(c)}
	}
}

// posix parses the rest of [:alpha:] or [:^alpha:] after its opening bracket.
func (p *parser) posix() []ucd.Span {
	name, rest, ok := strings.Cut(p.rest[1:], ":]")
	p.bad = p.bad || !ok
	p.rest = rest
	name, negate := strings.CutPrefix(name, "^")
	if name == "punct" {
		name = "posixpunct"
	}
	spans, ok := p.named(name)
	p.bad = p.bad || !ok || strings.ToLower(name) != name
	if negate {
		return ucd.Complement(spans)
	}
	return spans
}

// span parses the rest of a range after its first character c. Without a hyphen, it returns c
// only.
func (p *parser) span(c rune) ucd.Span {
	if len(p.rest) < 2 || p.rest[0] != '-' || p.rest[1] == ']' {
		return ucd.Span{Lo: c, Hi: c}
	}
	p.rest = p.rest[1:]
	high := p.char()
	switch high {
	case '[':
		p.bad = true
	case '\\':
		spans := p.escape(inBrackets)
		if !single(spans) {
			p.bad = true
			return ucd.Span{Lo: c, Hi: c}
		}
		high = spans[0].Lo
	}
	if high < c {
		p.bad = true
	}
	return ucd.Span{Lo: c, Hi: high}
}
