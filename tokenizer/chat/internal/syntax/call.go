package syntax

func (p *operands) call(x Expr) Expr {
	line := p.cur().line
	return &Call{Func: x, Args: p.args(), Line: line}
}

func (p *operands) args() (a Args) {
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
			a.Star = p.inner(true)
		case t.is("**"):
			check(a.Double == nil)
			p.next()
			a.Double = p.inner(true)
		case t.is(kindName) && p.look().is("="):
			check(a.Double == nil)
			p.next()
			p.next()
			a.Names, a.Named = append(a.Names, t.text), append(a.Named, p.inner(true))
		default:
			check(a.Star == nil && a.Double == nil && len(a.Named) == 0)
			a.Pos = append(a.Pos, p.inner(true))
		}
	}
	p.expect(")")
	return a
}
