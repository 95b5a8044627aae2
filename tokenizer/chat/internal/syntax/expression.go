package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// tupleOptions are how expressions with commas between them are read.
type tupleOptions struct {
	cond       bool // an inline if is allowed
	target     bool // only names and literals: to assign to
	attributes bool // namespace attributes may be assigned
	parens     bool // there are parentheses around
}

func (p *parser) target(o tupleOptions) Expr {
	o.target = true
	line := p.cur().line
	target := p.tuple(o)
	p.assignable(target, line)
	return target
}

func (p *parser) assignable(target Expr, line int) {
	kind := "const"
	switch t := target.(type) {
	case *Name:
		switch t.Name {
		case "true", "false", "none", "True", "False", "None":
			fail(line, "can't assign to 'name'")
		}
		return
	case *Attribute:
		return
	case *Tuple:
		for _, item := range t.Items {
			p.assignable(item, line)
		}
		return
	case *List:
		kind = "list"
	case *Dict:
		kind = "dict"
	}
	fail(line, "can't assign to '%s'", kind)
}

func (p *parser) tuple(o tupleOptions) Expr {
	var items []Expr
	comma := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if t := p.cur(); t.is(kindClose) || t.is(kindEnd) || t.is(")") {
			break
		}
		if o.target {
			items = append(items, p.primary(o.attributes))
		} else {
			items = append(items, p.expression(o.cond))
		}
		if !p.cur().is(",") {
			break
		}
		comma = true
	}
	if !comma {
		if len(items) == 1 {
			return items[0]
		}
		if !o.parens {
			fail(p.cur().line, "Expected an expression, got %s", quote(p.cur().describe()))
		}
	}
	return &Tuple{Items: items}
}

func (p *parser) expression(cond bool) Expr {
	defer p.enter()()
	if !cond {
		return p.or()
	}
	line := p.cur().line
	faults := len(p.fault)
	x := p.or()
	for p.skipWord("if") {
		p.fault = p.fault[:faults] // met only if the test says so
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

func (p *parser) or() Expr {
	x := p.and()
	for p.skipWord("or") {
		x = &Logic{Or: true, X: x, Y: p.and()}
	}
	return x
}

func (p *parser) and() Expr {
	x := p.not()
	for p.skipWord("and") {
		x = &Logic{X: x, Y: p.not()}
	}
	return x
}

func (p *parser) not() Expr {
	if p.skipWord("not") {
		defer p.enter()()
		return &Not{X: p.not()}
	}
	return p.compare()
}

func (p *parser) compare() Expr {
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
		c.Ops, c.Ys = append(c.Ops, op), append(c.Ys, p.sum())
	}
}

func (p *parser) sum() Expr {
	x := p.concat()
	for t := p.cur(); t.is("+") || t.is("-"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.concat(), Line: t.line}
	}
	return x
}

func (p *parser) concat() Expr {
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

func (p *parser) product() Expr {
	x := p.power()
	for t := p.cur(); t.is("*") || t.is("/") || t.is("//") || t.is("%"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.power(), Line: t.line}
	}
	return x
}

func (p *parser) power() Expr {
	x := p.unary(true)
	for t := p.cur(); t.is("**"); t = p.cur() {
		p.next()
		x = &Binary{Op: t.kind, X: x, Y: p.unary(true), Line: t.line}
	}
	return x
}

func (p *parser) unary(filters bool) Expr {
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

func (p *parser) primary(attributes bool) Expr {
	t := p.next()
	switch t.kind {
	case kindName:
		return p.name(t, attributes)
	case kindString:
		s, _ := py.Text(t.value)
		for p.cur().is(kindString) {
			more, _ := py.Text(p.next().value)
			s += more
		}
		return &Const{Value: s}
	case kindInteger, kindFloat:
		return &Const{Value: t.value}
	case "(":
		x := p.tuple(tupleOptions{cond: true, parens: true})
		p.expect(")")
		return x
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	fail(t.line, "unexpected %s", quote(t.describe()))
	return nil
}

func (p *parser) name(t token, attributes bool) Expr {
	switch t.text {
	case "true", "True":
		return &Const{Value: true}
	case "false", "False":
		return &Const{Value: false}
	case "none", "None":
		return &Const{Value: nil}
	}
	if attributes && p.skip(".") {
		return &Attribute{Name: t.text, Attr: p.expect(kindName).text, Line: t.line}
	}
	for _, m := range p.macros {
		m.Caller = m.Caller || t.text == "caller"
		m.Varargs = m.Varargs || t.text == "varargs"
		m.Kwargs = m.Kwargs || t.text == "kwargs"
	}
	return &Name{Name: t.text, Line: t.line}
}

func (p *parser) list() Expr {
	l := &List{}
	for !p.cur().is("]") {
		if len(l.Items) > 0 {
			p.expect(",")
		}
		if p.cur().is("]") {
			break
		}
		l.Items = append(l.Items, p.expression(true))
	}
	p.expect("]")
	return l
}

func (p *parser) dict() Expr {
	d := &Dict{}
	for !p.cur().is("}") {
		if len(d.Keys) > 0 {
			p.expect(",")
		}
		if p.cur().is("}") {
			break
		}
		d.Keys = append(d.Keys, p.expression(true))
		p.expect(":")
		d.Values = append(d.Values, p.expression(true))
	}
	p.expect("}")
	return d
}

func (p *parser) postfix(x Expr) Expr {
	for {
		switch t := p.cur(); t.kind {
		case ".":
			x = p.attribute(x)
		case "[":
			x = p.subscript(x)
		case "(":
			x = p.call(x)
		default:
			return x
		}
	}
}

func (p *parser) attribute(x Expr) Expr {
	line := p.next().line
	t := p.next()
	switch t.kind {
	case kindName:
		return &GetAttr{X: x, Name: t.text, Line: line}
	case kindInteger:
		return &GetItem{X: x, Key: &Const{Value: t.value}, Line: line}
	}
	fail(t.line, "expected name or number")
	return nil
}

func (p *parser) subscript(x Expr) Expr {
	line := p.next().line
	var keys []Expr
	for !p.cur().is("]") {
		if len(keys) > 0 {
			p.expect(",")
		}
		keys = append(keys, p.subscribed())
	}
	p.expect("]")
	if len(keys) == 1 {
		return &GetItem{X: x, Key: keys[0], Line: line}
	}
	for _, key := range keys {
		if _, ok := key.(*Slice); ok {
			py.RaiseAt(line, "SyntaxError", "a slice among several subscripts")
		}
	}
	return &GetItem{X: x, Key: &Tuple{Items: keys}, Line: line}
}

func (p *parser) subscribed() Expr {
	s := &Slice{}
	if !p.cur().is(":") {
		x := p.expression(true)
		if !p.cur().is(":") {
			return x
		}
		s.Start = x
	}
	p.expect(":")
	ends := func() bool { t := p.cur(); return t.is(":") || t.is("]") || t.is(",") }
	if !ends() {
		s.Stop = p.expression(true)
	}
	if p.skip(":") && !ends() {
		s.Step = p.expression(true)
	}
	return s
}
