package expr

import (
	"math/big"
	"strings"
)

// factor parses a primary with its signs and postfix operators.
func (p *parser) factor() *Node {
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	if op, ok := p.take("-", "+", "±", "∓"); ok {
		n := p.factor()
		if n == nil {
			return nil
		}
		switch op {
		case "-":
			return minus(n)
		case "+":
			return n
		}
		return Multiply(Named(op), n)
	}
	n := p.primary()
	for n != nil {
		op, ok := p.take("^", "!", "%", "deg", "'")
		if !ok {
			break
		}
		switch op {
		case "^":
			n = p.raised(n)
		case "!":
			n = call("factorial", n)
		case "'":
			n = call("prime", n)
		default:
			n = &Node{Kind: Unit, Name: op, Args: []*Node{n}}
		}
	}
	return n
}

// raised parses what follows a ^.
func (p *parser) raised(n *Node) *Node {
	if _, ok := p.take("deg"); ok { // 90^\circ
		return &Node{Kind: Unit, Name: "deg", Args: []*Node{n}}
	}
	if t := p.peek(); t.kind == tOpen && t.text == "group" && p.at+2 < len(p.in) && // 90^{\circ}
		p.in[p.at+1].kind == tOp && p.in[p.at+1].text == "deg" && p.in[p.at+2].kind == tClose {
		p.at += 3
		return &Node{Kind: Unit, Name: "deg", Args: []*Node{n}}
	}
	if p.isOp("*", "'") || p.peek().kind == tWord { // a mark such as * or th
		p.at++
		return n
	}
	exponent := p.factor()
	if exponent == nil {
		return nil
	}
	if n.Kind == Bracket && (exponent.Is("T") || exponent.Is("top")) { // a column vector written as a row
		return n
	}
	if n.Kind == Unit && n.Name != "%" && n.Name != "deg" {
		return &Node{Kind: Unit, Name: n.Name + "^" + exponent.Digits, Args: n.Args}
	}
	return power(n, exponent)
}

func (p *parser) primary() *Node {
	t := p.peek()
	switch t.kind {
	case tNumber:
		p.at++
		return p.numeral(t.node)
	case tSymbol:
		p.at++
		return p.named(t.text)
	case tFunc:
		p.at++
		return p.function(t.text)
	case tWord:
		return &Node{Kind: Text, Name: p.words()}
	case tOpen:
		return p.bracket()
	case tMatrix:
		return p.matrix()
	case tOp:
		switch t.text {
		case "$":
			p.at++
			n := p.factor()
			if n == nil {
				return nil
			}
			return &Node{Kind: Unit, Name: "dollars", Args: []*Node{n}}
		case "|", "||", "mid":
			return p.absolute(t.text)
		}
	}
	return p.fail()
}

// numeral parses a number's base or the fraction of a mixed number.
func (p *parser) numeral(n *Node) *Node {
	if _, ok := p.take("_"); ok {
		c := *n
		c.Base = inDigits(strings.Trim(p.subscript(), "{}"))
		return &c
	}
	if base, size := p.base(); size > 0 {
		c := *n
		c.Base = base
		p.at += size
		return &c
	}
	if !n.Value.IsInt() || n.Places > 0 {
		return n
	}
	if f, size := p.fraction(); f != nil && f.Sign() > 0 && f.Cmp(big.NewRat(1, 1)) < 0 {
		p.at += size
		return &Node{Kind: Number, Value: new(big.Rat).Add(n.Value, f)}
	}
	return n
}

// fraction returns the proper fraction that makes the preceding number mixed, and its
// length in tokens: \frac{1}{2}, or 1/2 after a space.
func (p *parser) fraction() (*big.Rat, int) {
	rest := p.in[p.at:]
	integer := func(i int) *big.Int {
		if i < len(rest) && rest[i].kind == tNumber && rest[i].node.Value.IsInt() && rest[i].node.Places == 0 {
			return rest[i].node.Value.Num()
		}
		return nil
	}
	is := func(i int, k kind, text string) bool {
		return i < len(rest) && rest[i].kind == k && rest[i].text == text
	}
	if a, b := integer(0), integer(2); a != nil && b != nil && rest[0].spaced && is(1, tOp, "/") && b.Sign() != 0 {
		return new(big.Rat).SetFrac(a, b), 3
	}
	if !is(0, tFunc, "frac") {
		return nil, 0
	}
	var parts [2]*big.Int
	at := 1
	for i := range parts {
		braced := is(at, tOpen, "group")
		if braced {
			at++
		}
		if parts[i] = integer(at); parts[i] == nil {
			return nil, 0
		}
		at++
		if braced {
			if !is(at, tClose, "group") {
				return nil, 0
			}
			at++
		}
	}
	if parts[1].Sign() == 0 {
		return nil, 0
	}
	return new(big.Rat).SetFrac(parts[0], parts[1]), at
}

// subscript returns the text after a _.
func (p *parser) subscript() string {
	var b strings.Builder
	depth := 0
	for p.at < len(p.in) {
		t := p.in[p.at]
		p.at++
		switch t.kind {
		case tOpen:
			depth++
			continue
		case tClose:
			depth--
		case tNumber:
			b.WriteString(t.node.Digits)
		default:
			b.WriteString(t.text)
		}
		if depth <= 0 {
			break
		}
	}
	return b.String()
}

// named parses a symbol. Names such as f and g are functions if brackets follow.
func (p *parser) named(name string) *Node {
	switch name {
	case "emptyset", "varnothing":
		return &Node{Kind: Bracket, Open: "{", Close: "}"}
	case "ldots", "dots", "cdots", "dotsc":
		return Named("ldots")
	case "triangle", "angle", "square", "measuredangle":
		if p.starts() {
			if n := p.factor(); n != nil {
				return call(name, n)
			}
			return nil
		}
	}
	if _, ok := p.take("_"); ok {
		name += "_" + p.subscript()
	}
	base, _, _ := strings.Cut(name, "_")
	t := p.peek()
	if name == "C" && t.kind == tOpen && t.text == "(" {
		if n := p.bracket(); n != nil {
			if args := arguments(n); len(args) == 2 {
				return call("binom", args...)
			}
			return Multiply(Named(name), n)
		}
		return nil
	}
	if (base == "f" || base == "g") && t.kind == tOpen && t.text == "(" && !t.spaced {
		if n := p.bracket(); n != nil {
			return call(name, arguments(n)...)
		}
		return nil
	}
	return Named(name)
}

func arguments(n *Node) []*Node {
	if n.Kind == Bracket {
		return n.Args
	}
	return []*Node{n}
}

// function parses the arguments of a function.
func (p *parser) function(name string) *Node {
	switch name {
	case "frac", "binom":
		a := p.argument()
		b := p.argument()
		switch {
		case a == nil || b == nil:
			return p.fail()
		case name == "frac":
			return Multiply(a, Invert(b))
		}
		return call(name, a, b)
	case "sqrt", "cbrt":
		return p.radical(name)
	}
	var below, above *Node
	for range 2 {
		if _, ok := p.take("_"); ok {
			below = p.argument()
		} else if _, ok := p.take("^"); ok {
			above = p.argument()
		}
	}
	var args []*Node
	switch t := p.peek(); {
	case name == "sum" || name == "prod" || name == "int" || name == "lim":
		body := p.term()
		if body == nil {
			return nil
		}
		return call(name, body, orZero(below), orZero(above))
	case t.kind == tOpen:
		n := p.bracket()
		if n == nil {
			return nil
		}
		args = arguments(n)
	default:
		n := p.operand()
		if n == nil {
			return nil
		}
		args = []*Node{n}
	}
	if name == "log" && below != nil {
		args = append(args[:len(args):len(args)], below)
	}
	n := call(name, args...)
	if above != nil && above.Kind == Number && above.Value.Cmp(big.NewRat(-1, 1)) == 0 {
		return call("arc"+name, args...)
	}
	if above != nil {
		return power(n, above)
	}
	return n
}

func orZero(n *Node) *Node {
	if n == nil {
		return Integer(0)
	}
	return n
}

// operand parses a function's argument without brackets: sin 5x cos x is (sin 5x)(cos
// x).
func (p *parser) operand() *Node {
	var args []*Node
	for {
		t := p.peek()
		if len(args) > 0 && (t.kind != tNumber && t.kind != tSymbol) {
			break
		}
		n := p.factor()
		if n == nil {
			return nil
		}
		args = append(args, n)
		if p.isOp("/") && p.at+1 < len(p.in) && p.in[p.at+1].kind == tNumber { // sin x/2
			p.at++
			if n = p.factor(); n == nil {
				return nil
			}
			args = append(args, Invert(n))
		}
	}
	return Multiply(args...)
}

// argument parses a brace group or one factor without postfix operators.
func (p *parser) argument() *Node {
	if _, ok := p.take("-"); ok {
		if n := p.argument(); n != nil {
			return minus(n)
		}
		return nil
	}
	if p.enter() {
		defer func() { p.depth-- }()
		return p.primary()
	}
	return nil
}

func (p *parser) radical(name string) *Node {
	degree := Integer(2)
	if name == "cbrt" {
		degree = Integer(3)
	}
	if t := p.peek(); t.kind == tOpen && t.text == "[" {
		if n := p.bracket(); n != nil && len(arguments(n)) == 1 {
			degree = arguments(n)[0]
		}
	}
	n := p.argument()
	if n == nil {
		return p.fail()
	}
	return root(n, degree)
}
