package split

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// tree is a parsed part of a pattern: a repeated set, a look-ahead, a choice, or
// a sequence of parts.
type tree struct {
	parts        []*tree
	set          *set
	min, max     int
	keep         bool
	look, negate bool
	choice       bool
}

const (
	maxNesting = 20
	maxPattern = 10000 // bytes
)

// parser parses patterns in Oniguruma's syntax, as far as matcher can match
// them. It gives up on all others.
type parser struct {
	rest  string
	sets  map[string]*set // by their source
	depth int
	fold  bool
	cases *ucd.Folder // nil until needed

	properties map[string][]ucd.Span // by name, that were looked up
	bad        bool                  // the pattern is not supported
}

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

// char removes and returns a character.
func (p *parser) char() rune {
	c, n := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[n:]
	if n == 0 {
		p.bad = true
	}
	return c
}

func (p *parser) choice() *tree {
	t := &tree{choice: true}
	if p.depth++; p.depth > maxNesting {
		p.bad = true
	}
	for !p.bad {
		t.parts = append(t.parts, p.row())
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

func (p *parser) row() *tree {
	t := &tree{}
	for !p.bad && p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		t.parts = append(t.parts, p.repeated(p.atom()))
	}
	return t
}

func (p *parser) atom() *tree {
	at := p.rest
	switch c := p.char(); c {
	case '(':
		return p.group()
	case '[':
		spans := p.class()
		return p.one(at[:len(at)-len(p.rest)], spans)
	case '.':
		return p.one(".", ucd.Complement([]ucd.Span{{Lo: '\n', Hi: '\n'}}))
	case '\\':
		if p.take("z") {
			return without([]ucd.Span{{Lo: 0, Hi: unicode.MaxRune}})
		}
		spans := p.escape(false)
		fold := p.fold
		p.fold = fold && single(spans)
		t := p.one(at[:len(at)-len(p.rest)], spans)
		p.fold = fold
		return t
	case '$':
		return without(ucd.Complement([]ucd.Span{{Lo: '\n', Hi: '\n'}}))
	case '^', '*', '+', '?', '{', '}', ']':
		p.bad = true
		return &tree{}
	default:
		return p.one(string(c), []ucd.Span{{Lo: c, Hi: c}})
	}
}

// without returns a look-ahead for anything but spans.
func without(spans []ucd.Span) *tree {
	return &tree{look: true, negate: true, parts: []*tree{{set: newSet(spans), min: 1, max: 1}}}
}

// one returns a tree that matches one character of spans, whose source is text.
func (p *parser) one(text string, spans []ucd.Span) *tree {
	if p.bad {
		return &tree{}
	}
	if p.fold {
		text = "(?i)" + text
	}
	s, ok := p.sets[text]
	if !ok {
		if p.fold {
			spans = p.folded(spans)
		}
		s = newSet(spans)
		p.sets[text] = s
	}
	return &tree{set: s, min: 1, max: 1}
}

// group parses the rest after a parenthesis.
func (p *parser) group() *tree {
	t, fold := &tree{}, p.fold
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
		if strings.HasPrefix(p.rest, "+") { // the libraries differ
			p.bad = true
		}
	default:
		return t
	}
	keep := p.take("+")
	if p.rest != "" && strings.IndexByte("?*+{", p.rest[0]) >= 0 {
		p.bad = true
	}
	switch {
	case t.set != nil:
		t.min, t.max, t.keep = low, high, keep
		return t
	case low == 0 && high == 1 && !keep && !t.look:
		return &tree{choice: true, parts: []*tree{t, {}}}
	}
	p.bad = true
	return t
}

// counts parses m}, m,} or m,n}.
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
