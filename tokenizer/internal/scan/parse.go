package scan

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
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
	maxFolded  = 1000  // characters of a set that ignores case
	maxPattern = 10000 // bytes
)

// parser parses patterns that mean the same to the tokenizers' library and to
// RE2. It gives up on all others.
type parser struct {
	rest  string
	sets  map[string]*set // by their source
	depth int
	fold  bool
	bad   bool // the pattern is not supported
}

func parse(pattern string) (*tree, bool) {
	p := &parser{rest: pattern, sets: make(map[string]*set)}
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
		return p.one(".", complement([]span{{'\n', '\n'}}))
	case '\\':
		spans := p.escape()
		return p.one(at[:len(at)-len(p.rest)], spans)
	case '^', '$', '*', '+', '?', '{', '}', ']':
		p.bad = true
		return &tree{}
	default:
		return p.one(string(c), []span{{c, c}})
	}
}

// one returns a tree that matches one character of spans, whose source is text.
func (p *parser) one(text string, spans []span) *tree {
	if p.bad {
		return &tree{}
	}
	if p.fold {
		text = "(?i)" + text
	}
	s, ok := p.sets[text]
	if !ok {
		if p.fold {
			count := 0
			for _, r := range spans {
				count += int(r.hi - r.lo + 1)
			}
			if count > maxFolded {
				p.bad = true
				return &tree{}
			}
			spans = folded(spans)
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

// escape parses the rest after a backslash.
func (p *parser) escape() []span {
	switch c := p.char(); c {
	case 'r':
		return []span{{'\r', '\r'}}
	case 'n':
		return []span{{'\n', '\n'}}
	case 't':
		return []span{{'\t', '\t'}}
	case 's':
		return tableSpans(unicode.White_Space)
	case 'S':
		return complement(tableSpans(unicode.White_Space))
	case 'd':
		return tableSpans(unicode.Nd)
	case 'D':
		return complement(tableSpans(unicode.Nd))
	case 'p', 'P':
		spans := p.property()
		if c == 'P' {
			spans = complement(spans)
		}
		return spans
	default:
		if c >= utf8.RuneSelf || unicode.IsLetter(c) || unicode.IsDigit(c) {
			p.bad = true
		}
		return []span{{c, c}}
	}
}

// property parses {L} and the like.
func (p *parser) property() []span {
	name, rest, ok := strings.Cut(p.rest, "}")
	if !ok || !strings.HasPrefix(name, "{") {
		p.bad = true
		return nil
	}
	p.rest = rest
	table := unicode.Categories[name[1:]]
	if table == nil {
		table = unicode.Scripts[name[1:]]
	}
	if table == nil {
		p.bad = true
		return nil
	}
	return tableSpans(table)
}

// class parses the rest after a bracket.
func (p *parser) class() []span {
	negate := p.take("^")
	var spans []span
	for first := true; !p.bad && !p.take("]"); first = false {
		c := p.char()
		switch {
		case c == '[', c == '&' && strings.HasPrefix(p.rest, "&"), c == '-' && !first && !strings.HasPrefix(p.rest, "]"):
			p.bad = true
		case c == '\\':
			add := p.escape()
			if len(add) != 1 || add[0].lo != add[0].hi {
				spans = append(spans, add...)
				continue
			}
			c = add[0].lo
			fallthrough
		default:
			spans = append(spans, p.span(c))
		}
	}
	if len(spans) == 0 {
		p.bad = true
	}
	spans = tidy(spans)
	if negate && p.fold { // the libraries apply these in different orders
		p.bad = true
	}
	if negate {
		return complement(spans)
	}
	return spans
}

// span parses the rest of a-z, if any.
func (p *parser) span(c rune) span {
	if len(p.rest) < 2 || p.rest[0] != '-' || p.rest[1] == ']' {
		return span{c, c}
	}
	p.rest = p.rest[1:]
	high := p.char()
	switch high {
	case '[':
		p.bad = true
	case '\\':
		add := p.escape()
		if len(add) != 1 || add[0].lo != add[0].hi {
			p.bad = true
			return span{c, c}
		}
		high = add[0].lo
	}
	if high < c {
		p.bad = true
	}
	return span{c, high}
}
