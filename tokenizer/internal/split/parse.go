package split

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// tree is a parsed part of a pattern: a repeated set if set is not nil, a look-ahead if look
// is set, a choice if choice is set, or else a sequence.
type tree struct {
	set        *set
	min, max   int  // number of repetitions of set
	possessive bool // the repetition never gives characters back

	parts  []*tree // items of a sequence, alternatives of a choice, or the only body of a look-ahead
	look   bool
	negate bool // of a look-ahead
	choice bool
}

const (
	maxNesting = 20    // depth of groups and classes
	maxPattern = 10000 // bytes
)

// parser parses patterns in Oniguruma's syntax, as far as matcher can match
// them. It gives up on all others: it sets bad and continues with any result.
type parser struct {
	rest  string          // part of the pattern that is not yet read
	sets  map[string]*set // set by source, so that equal classes share one
	depth int             // nesting of groups and classes
	fold  bool            // (?i) applies
	cases *ucd.Folder     // nil until needed

	properties map[string][]ucd.Span // characters by name, of the properties looked up so far
	bad        bool                  // the pattern is not supported
}

// parse parses a pattern, or returns false if it is not supported.
func parse(pattern string) (*tree, bool) {
	p := &parser{rest: pattern, sets: make(map[string]*set), properties: make(map[string][]ucd.Span)}
	if len(pattern) > maxPattern || !utf8.ValidString(pattern) {
		return nil, false
	}
	t := p.choice()
	return t, !p.bad && p.rest == ""
}

// take removes prefix if it is next.
func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

// char removes and returns a character. At the end of the pattern it sets bad.
func (p *parser) char() rune {
	c, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	if n == 0 {
		p.bad = true
	}
	return c
}

// choice parses alternatives, up to a closing parenthesis or the end.
func (p *parser) choice() *tree {
	t := &tree{choice: true}
	p.depth++
	if p.depth > maxNesting {
		p.bad = true
	}
	for !p.bad {
		t.parts = append(t.parts, p.sequence())
		if !p.take("|") {
			break
		}
	}
	p.depth--
	if len(t.parts) == 1 {
		return t.parts[0]
	}
	return t
}

// sequence parses repeated atoms, up to the end of an alternative.
func (p *parser) sequence() *tree {
	t := &tree{}
	for !p.bad && p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		t.parts = append(t.parts, p.repeated(p.atom()))
	}
	return t
}

// atom parses a group, a class, an escape, an anchor or a character, without quantifier.
func (p *parser) atom() *tree {
	before := p.rest
	source := func() string { return before[:len(before)-len(p.rest)] }
	switch c := p.char(); c {
	case '(':
		return p.group()
	case '[':
		spans := p.class()
		return p.one(source(), spans)
	case '.':
		return p.one(".", ucd.Complement([]ucd.Span{{Lo: '\n', Hi: '\n'}}))
	case '\\':
		if p.take("z") {
			return notFollowedBy([]ucd.Span{{Lo: 0, Hi: unicode.MaxRune}})
		}
		spans := p.escape(outBrackets)
		fold := p.fold
		p.fold = fold && single(spans)
		t := p.one(source(), spans)
		p.fold = fold
		return t
	case '$':
		return notFollowedBy(ucd.Complement([]ucd.Span{{Lo: '\n', Hi: '\n'}}))
	case '^', '*', '+', '?', '{', '}', ']':
		p.bad = true
		return &tree{}
	default:
		return p.one(string(c), []ucd.Span{{Lo: c, Hi: c}})
	}
}

// notFollowedBy returns a look-ahead that fails before a character of spans.
func notFollowedBy(spans []ucd.Span) *tree {
	return &tree{look: true, negate: true, parts: []*tree{{set: newSet(spans), min: 1, max: 1}}}
}

// one returns a tree that matches one character of spans. source is the part of the pattern
// that spans come from.
func (p *parser) one(source string, spans []ucd.Span) *tree {
	if p.bad {
		return &tree{}
	}
	if p.fold {
		source = "(?i)" + source
	}
	s, ok := p.sets[source]
	if !ok {
		if p.fold {
			spans = p.folded(spans)
		}
		s = newSet(spans)
		p.sets[source] = s
	}
	return &tree{set: s, min: 1, max: 1}
}

// group parses the rest of a group after its opening parenthesis.
func (p *parser) group() *tree {
	t := &tree{}
	fold := p.fold
	switch {
	case p.take("?:"):
	case p.take("?i:"):
		p.fold = true
	case p.take("?="):
		t.look = true
	case p.take("?!"):
		t.look, t.negate = true, true
	case p.take("?"), p.take("*"):
		p.bad = true
	}
	t.parts = []*tree{p.choice()}
	p.fold = fold
	if !p.take(")") {
		p.bad = true
	}
	return t
}

// repeated parses the quantifier of t.
func (p *parser) repeated(t *tree) *tree {
	low, high := 1, 1
	switch {
	case p.take("?"):
		low = 0
	case p.take("*"):
		low, high = 0, math.MaxInt
	case p.take("+"):
		high = math.MaxInt
	case p.take("{"):
		low, high = p.counts()
		if strings.HasPrefix(p.rest, "+") { // possessive for some libraries, a repetition for others
			p.bad = true
		}
	default:
		return t
	}
	possessive := p.take("+")
	if p.rest != "" && strings.IndexByte("?*+{", p.rest[0]) >= 0 {
		p.bad = true
	}
	switch {
	case t.set != nil:
		t.min, t.max, t.possessive = low, high, possessive
		return t
	case low == 0 && high == 1 && !possessive && !t.look:
		return &tree{choice: true, parts: []*tree{t, {}}} // t or nothing
	}
	p.bad = true
	return t
}

// counts parses the rest of {m}, {m,} or {m,n} after its brace.
func (p *parser) counts() (low, high int) {
	low = p.number()
	high = low
	if p.take(",") {
		high = math.MaxInt
		if !strings.HasPrefix(p.rest, "}") {
			high = p.number()
		}
	}
	if !p.take("}") || high < low || high == 0 {
		p.bad = true
	}
	return low, high
}

// number parses a decimal number of at most six digits.
func (p *parser) number() int {
	n, digits := 0, 0
	for ; p.rest != "" && p.rest[0] >= '0' && p.rest[0] <= '9' && digits < 6; digits++ {
		n = 10*n + int(p.rest[0]-'0')
		p.rest = p.rest[1:]
	}
	if digits == 0 {
		p.bad = true
	}
	return n
}
