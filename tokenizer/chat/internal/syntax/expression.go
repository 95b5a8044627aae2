package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// expressions parses expressions: operators, filters and tests between operands. It is a
// recursive-descent parser with a method for each level of precedence, from expression, the
// lowest, to unary; primary and postfix parse the operands.
type expressions struct {
	*cursor
	known   Known
	macros  []*Macro   // enclosing macros
	soft    int        // number of enclosing ifs, in which an unknown filter is an error only when used
	unknown []py.Error // errors about unknown filters and tests
}

// expression parses an expression. cond allows an inline if.
func (p *expressions) expression(cond bool) Expr {
	defer p.enter()()
	if !cond {
		return p.or()
	}
	line := p.cur().line
	before := len(p.unknown)
	x := p.or()
	for p.skipWord("if") {
		p.unknown = p.unknown[:before] // x is evaluated only if the test passes
		c := &Cond{Then: x, Line: line}
		p.soft++
		c.Test = p.or()
		if p.skipWord("else") {
			c.Else = p.expression(true)
		}
		p.soft--
		x = c
	}
	return x
}

// or parses an expression without an inline if. It and the methods below parse one level of operators each,
// from those that bind least (or) to those that bind most (**).
func (p *expressions) or() Expr {
	x := p.and()
	for p.skipWord("or") {
		x = &Logic{Or: true, X: x, Y: p.and()}
	}
	return x
}

func (p *expressions) and() Expr {
	x := p.not()
	for p.skipWord("and") {
		x = &Logic{X: x, Y: p.not()}
	}
	return x
}

func (p *expressions) not() Expr {
	if p.skipWord("not") {
		defer p.enter()()
		return &Not{X: p.not()}
	}
	return p.compare()
}

// compare parses a chain of comparisons, such as a < b <= c, or a single operand.
func (p *expressions) compare() Expr {
	line := p.cur().line
	x := p.sum()
	c := &Compare{X: x, Line: line}
	for {
		op := p.cur().kind
		switch {
		case op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=":
			p.next()
		case p.skipWord("in"):
			op = "in"
		case p.cur().word("not") && p.look().word("in"):
			p.next()
			p.next()
			op = "notin"
		case len(c.Ops) == 0:
			return x
		default:
			return c
		}
		c.Ops = append(c.Ops, op)
		c.Ys = append(c.Ys, p.sum())
	}
}

func (p *expressions) sum() Expr {
	x := p.concat()
	for t := p.cur(); t.is("+") || t.is("-"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.concat(), Line: t.line}
	}
	return x
}

// concat parses operands between ~, which joins them as text.
func (p *expressions) concat() Expr {
	x := p.product()
	if !p.cur().is("~") {
		return x
	}
	c := &Concat{Parts: []Expr{x}}
	for p.skip("~") {
		c.Parts = append(c.Parts, p.product())
	}
	return c
}

func (p *expressions) product() Expr {
	x := p.power()
	for t := p.cur(); t.is("*") || t.is("/") || t.is("//") || t.is("%"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.power(), Line: t.line}
	}
	return x
}

// power parses powers. In Jinja ** associates to the left, unlike in Python.
func (p *expressions) power() Expr {
	x := p.unary(true)
	for t := p.cur(); t.is("**"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.unary(true), Line: t.line}
	}
	return x
}

// unary parses a signed operand and what follows it. Filters and tests apply to the signed
// operand: filters is false for the operand after a sign, which leaves them to its caller.
func (p *expressions) unary(filters bool) Expr {
	t := p.cur()
	var x Expr
	if t.is("-") || t.is("+") {
		defer p.enter()()
		p.next()
		x = &Unary{Minus: t.is("-"), X: p.unary(false), Line: t.line}
	} else {
		x = p.primary(false)
	}
	x = p.postfix(x)
	for filters {
		switch t := p.cur(); {
		case t.is("|"):
			x = p.filter(x, false)
		case t.word("is"):
			x = p.test(x)
		case t.is("("):
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}
