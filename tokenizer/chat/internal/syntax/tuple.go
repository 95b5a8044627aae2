package syntax

// tupleOptions determines how to parse expressions separated by commas.
type tupleOptions struct {
	cond       bool // an inline if is allowed
	target     bool // only names and literals: to assign to
	attributes bool // namespace attributes may be assigned
	parens     bool // enclosed in parentheses
}

func (p *operands) target(o tupleOptions) Expr {
	o.target = true
	line := p.cur().line
	target := p.tuple(o)
	assignable(target, line)
	return target
}

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

func (p *operands) tuple(o tupleOptions) Expr {
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
			items = append(items, p.inner(o.cond))
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
