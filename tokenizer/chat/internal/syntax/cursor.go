package syntax

// maxDepth limits the nesting of expressions and blocks.
const maxDepth = 200

// cursor reads a template's tokens in order. The last one is of kindEOF; the cursor stays
// there.
type cursor struct {
	tokens []token
	at     int // index of the current token
	depth  int // nesting of expressions and blocks
}

// cur returns the current token.
func (c *cursor) cur() token { return c.tokens[c.at] }

// next returns the current token and moves to the one after it.
func (c *cursor) next() token {
	t := c.tokens[c.at]
	if t.kind != kindEOF {
		c.at++
	}
	return t
}

// look returns the token after the current one.
func (c *cursor) look() token { return c.tokens[min(c.at+1, len(c.tokens)-1)] }

// skip moves past the current token if it is of a kind, and reports whether it is.
func (c *cursor) skip(kind string) bool {
	if c.cur().is(kind) {
		c.next()
		return true
	}
	return false
}

// skipWord moves past the current token if it is a name, and reports whether it is.
func (c *cursor) skipWord(name string) bool {
	if c.cur().word(name) {
		c.next()
		return true
	}
	return false
}

// expect is next for a token that must be of a kind.
func (c *cursor) expect(kind string) token {
	t := c.cur()
	if t.is(kind) {
		return c.next()
	}
	want := quote(token{kind: kind, text: kind}.describe())
	if t.is(kindEOF) {
		fail(t.line, "unexpected end of template, expected %s.", want)
	}
	fail(t.line, "expected token %s, got %s", want, quote(t.describe()))
	return t
}

// expectWord moves past a token that must be a name.
func (c *cursor) expectWord(name string) {
	if !c.skipWord(name) {
		fail(c.cur().line, "expected token %s, got %s", quote(name), quote(c.cur().describe()))
	}
}

// enter enters a level of nesting. The returned function leaves it: defer c.enter()().
func (c *cursor) enter() func() {
	c.depth++
	if c.depth > maxDepth {
		fail(c.cur().line, "expressions and blocks nest deeper than %d levels", maxDepth)
	}
	return func() { c.depth-- }
}

func (t token) is(kind string) bool { return t.kind == kind }

// word reports whether t is one of these names.
func (t token) word(names ...string) bool {
	for _, name := range names {
		if t.kind == kindName && t.text == name {
			return true
		}
	}
	return false
}

// describe returns the text of a token for an error, as Jinja describes it.
func (t token) describe() string {
	switch t.kind {
	case kindName:
		return t.text
	case kindBegin:
		return "begin of statement block"
	case kindEnd:
		return "end of statement block"
	case kindOpen:
		return "begin of print statement"
	case kindClose:
		return "end of print statement"
	case kindData:
		return "template data / text"
	case kindEOF:
		return "end of template"
	}
	return t.kind
}
