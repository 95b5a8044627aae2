package expr

import "strings"

// bracket parses a bracketed expression.
func (p *parser) bracket() *Node {
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	open := p.peek().text
	p.at++
	pipes, set := p.pipes, p.set
	p.pipes, p.set = 0, open == "{"
	defer func() { p.pipes, p.set = pipes, set }()
	if t := p.peek(); t.kind == tClose { // {} is empty
		p.at++
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
		p.set = false
		if n = p.groups(); n == nil {
			return nil
		}
	}
	if n == nil || p.peek().kind != tClose {
		return p.fail()
	}
	closing := p.peek().text
	p.at++
	switch {
	case open == "group" && closing == "group":
		return n
	case open == "floor", open == "ceil":
		return call(open, n)
	case open == "(" && closing == ")" && n.Kind == Number && n.Base == "" && p.isOp("_"): // (204)_5
		p.at++
		c := *n
		c.Base = inDigits(strings.Trim(p.subscript(), "{}"))
		return &c
	case open == "(" && closing == ")" && n.Kind != List:
		if n.Kind == Relation {
			return &Node{Kind: Bracket, Open: open, Close: closing, Args: []*Node{n}}
		}
		return n
	}
	items := []*Node{n}
	if n.Kind == List {
		items = n.Args
	}
	return &Node{Kind: Bracket, Open: open, Close: closing, Args: items}
}

func (p *parser) absolute(pipe string) *Node {
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	p.at++
	p.pipes++
	set := p.set
	p.set = false
	n := p.relation()
	p.set = set
	p.pipes--
	if n == nil {
		return nil
	}
	if _, ok := p.take(pipe); !ok {
		return p.fail()
	}
	if pipe == "||" {
		return call("norm", n)
	}
	return call("abs", n)
}

// matrix parses rows of cells up to the end of the environment.
func (p *parser) matrix() *Node {
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	env := p.peek().text
	p.at++
	pipes := p.pipes
	p.pipes = 0
	defer func() { p.pipes = pipes }()
	m := &Node{Kind: Matrix}
	row := &Node{Kind: List}
	for {
		switch {
		case p.peek().kind == tFinish:
			p.at++
			if len(row.Args) > 0 {
				m.Args = append(m.Args, row)
			}
			if len(m.Args) == 0 {
				return p.fail()
			}
			if env == "vmatrix" {
				return call("det", m)
			}
			return m
		case p.isOp("row"):
			p.at++
			if len(row.Args) > 0 {
				m.Args = append(m.Args, row)
			}
			row = &Node{Kind: List}
		case p.isOp("&"):
			p.at++
		default:
			n := p.relation()
			if n == nil {
				return nil
			}
			row.Args = append(row.Args, n)
			if !p.isOp("&", "row") && p.peek().kind != tFinish {
				return p.fail()
			}
		}
	}
}
