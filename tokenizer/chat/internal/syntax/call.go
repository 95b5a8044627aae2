package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

func (p *parser) call(x Expr) Expr {
	line := p.cur().line
	return &Call{Func: x, Args: p.args(), Line: line}
}

func (p *parser) args() (a Args) {
	line := p.expect("(").line
	check := func(ok bool) {
		if !ok {
			fail(line, "invalid syntax for function call expression")
		}
	}
	for first := true; !p.cur().is(")"); first = false {
		if !first {
			p.expect(",")
			if p.cur().is(")") {
				break
			}
		}
		switch t := p.cur(); {
		case t.is("*"):
			check(a.Star == nil && a.Double == nil)
			p.next()
			a.Star = p.expression(true)
		case t.is("**"):
			check(a.Double == nil)
			p.next()
			a.Double = p.expression(true)
		case t.is(kindName) && p.look().is("="):
			check(a.Double == nil)
			p.next()
			p.next()
			a.Names, a.Named = append(a.Names, t.text), append(a.Named, p.expression(true))
		default:
			check(a.Star == nil && a.Double == nil && len(a.Named) == 0)
			a.Pos = append(a.Pos, p.expression(true))
		}
	}
	p.expect(")")
	return a
}

// filter parses filters after one another; at the head of a block the first has
// no bar before it.
func (p *parser) filter(x Expr, head bool) Expr {
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

func (p *parser) dotted() string {
	name := p.expect(kindName).text
	for p.skip(".") {
		name += "." + p.expect(kindName).text
	}
	return name
}

func (p *parser) test(x Expr) Expr {
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

// check notes a filter or test that there is not, unless it stands where it may
// never be met.
func (p *parser) check(what, name string, line int, known func(string) bool) {
	if p.soft == 0 && !known(name) {
		p.fault = append(p.fault, py.Error{Kind: py.KindAssertion, Message: "No " + what + " named " + quote(name) + ".", Line: line})
	}
}
