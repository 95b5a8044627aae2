package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// operands parses the operands of operators: literals, names and brackets, and the
// attributes, subscripts and calls that follow them.
type operands struct {
	*cursor
	inner  func(cond bool) Expr // parses an expression inside an operand
	macros []*Macro             // enclosing macros
}

func (p *operands) primary(attributes bool) Expr {
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

func (p *operands) name(t token, attributes bool) Expr {
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

func (p *operands) list() Expr {
	l := &List{}
	for !p.cur().is("]") {
		if len(l.Items) > 0 {
			p.expect(",")
		}
		if p.cur().is("]") {
			break
		}
		l.Items = append(l.Items, p.inner(true))
	}
	p.expect("]")
	return l
}

func (p *operands) dict() Expr {
	d := &Dict{}
	for !p.cur().is("}") {
		if len(d.Keys) > 0 {
			p.expect(",")
		}
		if p.cur().is("}") {
			break
		}
		d.Keys = append(d.Keys, p.inner(true))
		p.expect(":")
		d.Values = append(d.Values, p.inner(true))
	}
	p.expect("}")
	return d
}

func (p *operands) postfix(x Expr) Expr {
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

func (p *operands) attribute(x Expr) Expr {
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

func (p *operands) subscript(x Expr) Expr {
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
			py.RaiseAt(line, "SyntaxError", "slice among several subscripts")
		}
	}
	return &GetItem{X: x, Key: &Tuple{Items: keys}, Line: line}
}

func (p *operands) subscribed() Expr {
	s := &Slice{}
	if !p.cur().is(":") {
		x := p.inner(true)
		if !p.cur().is(":") {
			return x
		}
		s.Start = x
	}
	p.expect(":")
	ends := func() bool { t := p.cur(); return t.is(":") || t.is("]") || t.is(",") }
	if !ends() {
		s.Stop = p.inner(true)
	}
	if p.skip(":") && !ends() {
		s.Step = p.inner(true)
	}
	return s
}
