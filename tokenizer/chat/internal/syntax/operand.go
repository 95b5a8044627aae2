package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// primary parses a literal, a name or a bracket. attributes allows the attribute of a
// namespace as a target.
func (p *expressions) primary(attributes bool) Expr {
	t := p.next()
	switch t.kind {
	case kindName:
		return p.name(t, attributes)
	case kindString:
		s, _ := py.Text(t.value)
		for p.cur().is(kindString) { // adjacent literals form one string
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

// name returns the expression of a name: a constant, a variable, or a target. It records in
// the enclosing macros which special names they use.
func (p *expressions) name(t token, attributes bool) Expr {
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

// list parses a list after its opening bracket.
func (p *expressions) list() Expr {
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

// dict parses a dict after its opening brace.
func (p *expressions) dict() Expr {
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

// postfix parses the attributes, subscripts and calls after x.
func (p *expressions) postfix(x Expr) Expr {
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

// attribute parses .name, or .0 for an item.
func (p *expressions) attribute(x Expr) Expr {
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

// subscript parses [key], [start:stop:step] or [a, b], whose key is a tuple.
func (p *expressions) subscript(x Expr) Expr {
	line := p.next().line
	var keys []Expr
	for !p.cur().is("]") {
		if len(keys) > 0 {
			p.expect(",")
		}
		keys = append(keys, p.key())
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

// key parses a subscript's key or slice.
func (p *expressions) key() Expr {
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

func (p *expressions) call(x Expr) Expr {
	line := p.cur().line
	return &Call{Func: x, Args: p.args(), Line: line}
}

// args parses a call's arguments: positional, then named and *args, then **kwargs.
func (p *expressions) args() (a Args) {
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
			a.Names = append(a.Names, t.text)
			a.Named = append(a.Named, p.expression(true))
		default:
			check(a.Star == nil && a.Double == nil && len(a.Named) == 0)
			a.Pos = append(a.Pos, p.expression(true))
		}
	}
	p.expect(")")
	return a
}

// tupleOptions determines how to parse expressions separated by commas.
type tupleOptions struct {
	cond       bool // an inline if is allowed
	target     bool // the items are targets of an assignment: no operators
	attributes bool // a target may be an attribute of a namespace
	parens     bool // the tuple is in parentheses and may be empty
}

// target parses the target of an assignment. Of o, only attributes applies.
func (p *expressions) target(o tupleOptions) Expr {
	o.target = true
	line := p.cur().line
	target := p.tuple(o)
	assignable(target, line)
	return target
}

// assignable raises a syntax error if target cannot be assigned.
func assignable(target Expr, line int) {
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
			assignable(item, line)
		}
		return
	case *List:
		kind = "list"
	case *Dict:
		kind = "dict"
	}
	fail(line, "can't assign to '%s'", kind)
}

// tuple parses expressions separated by commas. One expression without a comma is itself,
// not a tuple.
func (p *expressions) tuple(o tupleOptions) Expr {
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

// filter parses a chain of filters of x. At the head of a filter block, x is nil and no bar
// precedes the first filter.
func (p *expressions) filter(x Expr, head bool) Expr {
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

// dotted parses the name of a filter or test.
func (p *expressions) dotted() string {
	name := p.expect(kindName).text
	for p.skip(".") {
		name += "." + p.expect(kindName).text
	}
	return name
}

// test parses a test of x. An argument needs no parentheses: x is divisibleby 3.
func (p *expressions) test(x Expr) Expr {
	p.next()
	negated := p.skipWord("not")
	test := &Test{X: x, Line: p.cur().line, Name: p.dotted()}
	switch t := p.cur(); {
	case t.is("("):
		test.Args = p.args()
	case t.is(kindName) && !t.word("else", "or", "and"), t.is(kindString), t.is(kindInteger), t.is(kindFloat),
		t.is("["), t.is("{"):
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
func (p *expressions) check(what, name string, line int, known func(string) bool) {
	if p.soft == 0 && !known(name) {
		p.unknown = append(p.unknown, py.Error{Kind: py.KindAssertion,
			Message: "No " + what + " named " + quote(name) + ".", Line: line})
	}
}
