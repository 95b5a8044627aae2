package expr

import "strings"

// bracket parses a bracketed expression.
func (p *parser) bracket() *Node {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	open := p.next().text
	outer := p.scope
	p.scope = scope{set: open == "{"}
	defer func() { p.scope = outer }()
	if t := p.peek(); t.kind == tClose { // {} is empty
		p.next()
		if open == "group" {
			return &Node{Kind: Text}
		}
		return &Node{Kind: Bracket, Open: open, Close: t.text}
	}
	n := p.groups()
	for n != nil { // set-builder notation: the condition in {x | x > 0} replaces x
		if _, ok := p.take("|", ":", "mid"); !ok {
			break
		}
		p.scope.set = false
		if n = p.groups(); n == nil {
			return nil
		}
	}
	if n == nil || p.peek().kind != tClose {
		return nil
	}
	closing := p.next().text
	switch {
	case open == "group" && closing == "group":
		return n
	case open == "floor", open == "ceil":
		return call(open, n)
	case open == "(" && closing == ")" && n.Kind == Number && n.Base == "" && p.isOp("_"): // (204)_5
		p.next()
		return n.inBase(strings.Trim(p.subscript(), "{}"))
	case open == "(" && closing == ")" && n.Kind != List && n.Kind != Relation:
		return n
	}
	items := []*Node{n}
	if n.Kind == List {
		items = n.Args
	}
	return &Node{Kind: Bracket, Open: open, Close: closing, Args: items}
}

// absolute parses |x| or ||x||. pipe is the sign that opens and closes it.
func (p *parser) absolute(pipe string) *Node {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	p.next()
	outer := p.scope
	p.scope = scope{pipes: outer.pipes + 1}
	n := p.relation()
	p.scope = outer
	if n == nil || !p.accept(tOp, pipe) {
		return nil
	}
	if pipe == "||" {
		return call("norm", n)
	}
	return call("abs", n)
}

// matrix parses rows of cells up to the end of the environment.
func (p *parser) matrix() *Node {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	env := p.next().text
	outer := p.scope
	p.scope.pipes = 0
	defer func() { p.scope = outer }()
	m := &Node{Kind: Matrix}
	row := &Node{Kind: List}
	for {
		switch t := p.peek(); {
		case t.kind == tFinish || t.isOp("row"):
			p.next()
			if len(row.Args) > 0 {
				m.Args = append(m.Args, row)
			}
			row = &Node{Kind: List}
			switch {
			case t.kind != tFinish:
			case len(m.Args) == 0:
				return nil
			case env == "vmatrix":
				return call("det", m)
			default:
				return m
			}
		case t.isOp("&"):
			p.next()
		default:
			n := p.relation()
			if n == nil {
				return nil
			}
			row.Args = append(row.Args, n)
			if !p.isOp("&", "row") && p.peek().kind != tFinish {
				return nil
			}
		}
	}
}
