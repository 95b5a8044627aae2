package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// filter parses a chain of filters. At the head of a block the first has no bar before
// it.
func (p *operators) filter(x Expr, head bool) Expr {
	for head || p.cur().is("|") {
		if !head {
			p.next()
		}
		head = false
		f := &Filter{X: x, Line: p.cur().line, Name: p.dotted()}
		if p.cur().is("(") {
			f.Args = p.args()
		}
		p.check("filter", f.Name, f.Line, p.known.Filter)
		x = f
	}
	return x
}

func (p *operators) dotted() string {
	name := p.expect(kindName).text
	for p.skip(".") {
		name += "." + p.expect(kindName).text
	}
	return name
}

func (p *operators) test(x Expr) Expr {
	p.next()
	negated := p.skipWord("not")
	test := &Test{X: x, Line: p.cur().line, Name: p.dotted()}
	switch t := p.cur(); {
	case t.is("("):
		test.Args = p.args()
	case t.is(kindName) && !t.word("else", "or", "and"), t.is(kindString), t.is(kindInteger), t.is(kindFloat), t.is("["), t.is("{"):
		if t.word("is") {
			fail(t.line, "You cannot chain multiple tests with is")
		}
		test.Args.Pos = []Expr{p.postfix(p.primary(false))}
	}
	p.check("test", test.Name, test.Line, p.known.Test)
	if negated {
		return &Not{X: test}
	}
	return test
}

// check records an unknown filter or test, unless it may never be evaluated.
func (p *operators) check(what, name string, line int, known func(string) bool) {
	if p.soft == 0 && !known(name) {
		p.fault = append(p.fault, py.Error{Kind: py.KindAssertion, Message: "No " + what + " named " + quote(name) + ".", Line: line})
	}
}
