package expr

import (
	"math/big"
	"strings"
)

// factor parses a primary with its signs and postfix operators.
func (p *parser) factor() *Node {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	if op, ok := p.take("-", "+", "±", "∓"); ok {
		n := p.factor()
		switch {
		case n == nil || op == "+":
			return n
		case op == "-":
			return minus(n)
		}
		return Multiply(Named(op), n)
	}
	n := p.primary()
	for marks := 0; n != nil; marks++ {
		op, ok := p.take("^", "!", "%", "deg", "'")
		if !ok {
			break
		}
		if marks == maxMarks {
			return nil
		}
		switch op {
		case "^":
			n = p.raised(n)
		case "!":
			n = call("factorial", n)
		case "'":
			n = call("prime", n)
		default:
			if n.Kind == Unit && n.Name == op { // 5%%
				return nil
			}
			n = &Node{Kind: Unit, Name: op, Args: []*Node{n}}
		}
	}
	return n
}

// raised parses what follows a ^.
func (p *parser) raised(n *Node) *Node {
	if p.degree() {
		return &Node{Kind: Unit, Name: "deg", Args: []*Node{n}}
	}
	if t := p.peek(); t.isOp("*", "'") || t.kind == tWord { // a mark such as * or th
		p.next()
		return n
	}
	exponent := p.factor()
	if exponent == nil {
		return nil
	}
	if n.Kind == Bracket && (exponent.Is("T") || exponent.Is("top")) { // a column vector written as a row
		return n
	}
	if n.isMeasured() {
		return &Node{Kind: Unit, Name: n.Name + "^" + exponent.Digits, Args: n.Args}
	}
	return power(n, exponent)
}

// primary parses one factor without postfix operators and exponents, such as 5, x, \sin x, (a + b) or |x|.
func (p *parser) primary() *Node {
	t := p.peek()
	switch t.kind {
	case tNumber:
		p.next()
		return p.numeral(t.node)
	case tSymbol:
		p.next()
		return p.named(t.text)
	case tFunc:
		p.next()
		return p.function(t.text)
	case tWord:
		return p.text()
	case tOpen:
		return p.bracket()
	case tMatrix:
		return p.matrix()
	case tOp:
		switch t.text {
		case "$":
			p.next()
			n := p.factor()
			if n == nil {
				return nil
			}
			return &Node{Kind: Unit, Name: "dollars", Args: []*Node{n}}
		case "|", "||", "mid":
			return p.absolute(t.text)
		}
	}
	return nil
}

// named parses a symbol. Names such as f and g are functions if brackets follow.
func (p *parser) named(name string) *Node {
	switch name {
	case "emptyset", "varnothing":
		return &Node{Kind: Bracket, Open: "{", Close: "}"}
	case "ldots", "dots", "cdots", "dotsc":
		return Named("ldots")
	case "triangle", "angle", "square", "measuredangle":
		if p.scope.starts(p.peek()) {
			n := p.factor()
			for n != nil && p.peek().kind == tSymbol && len(p.peek().text) == 1 && p.peek().text < "a" { // ACB
				n = Multiply(append(factors(n), p.factor())...)
			}
			if n != nil {
				return call(name, n)
			}
			return nil
		}
	}
	if p.accept(tOp, "_") {
		name += "_" + p.subscript()
	}
	base, _, _ := strings.Cut(name, "_")
	t := p.peek()
	if t.kind != tOpen || t.text != "(" || name != "C" && name != "Gamma" && (base != "f" && base != "g" || t.spaced) {
		return Named(name)
	}
	n := p.bracket()
	if n == nil || len(arguments(n)) == 0 {
		return nil
	}
	args := arguments(n)
	switch {
	case name == "Gamma" && len(args) == 1:
		return call("factorial", less(args[0]))
	case name != "C":
		return call(name, args...)
	case len(args) == 2:
		return call("binom", args...)
	}
	return Multiply(Named(name), n)
}

// factors returns the factors of a product, or n.
func factors(n *Node) []*Node {
	if n.Kind == Product {
		return n.Args[:len(n.Args):len(n.Args)]
	}
	return []*Node{n}
}

// less returns n - 1.
func less(n *Node) *Node {
	if last := len(n.Args) - 1; n.Kind == Sum && n.Args[last].Kind == Number && n.Args[last].Digits == "1" {
		return Add(n.Args[:last]...)
	}
	return Add(n, Integer(-1))
}

// arguments returns the items of a bracket, or n itself: f(x, y) and f x.
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
			return nil
		case name == "frac":
			return Multiply(a, Invert(b))
		}
		return call(name, a, b)
	case "sqrt", "cbrt":
		return p.radical(name)
	}
	scripts := map[string]*Node{}
	for range 2 {
		if op, ok := p.take("_", "^"); ok {
			if scripts[op] = p.argument(); scripts[op] == nil {
				return nil
			}
		}
	}
	below, above := scripts["_"], scripts["^"]
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
		if n == nil || len(arguments(n)) == 0 {
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

// orZero returns n, or 0 if n is nil.
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
		if p.isOp("/") && p.ahead(1).kind == tNumber { // sin x/2
			p.next()
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
	if p.accept(tOp, "-") {
		if n := p.argument(); n != nil {
			return minus(n)
		}
		return nil
	}
	defer p.leave()
	if !p.enter() {
		return nil
	}
	return p.primary()
}

// radical parses the degree and the argument of a root: \sqrt[3]{x}.
func (p *parser) radical(name string) *Node {
	degree := Integer(map[string]int64{"sqrt": 2, "cbrt": 3}[name])
	if t := p.peek(); t.kind == tOpen && t.text == "[" {
		n := p.bracket()
		if n == nil {
			return nil
		}
		if args := arguments(n); len(args) == 1 {
			degree = args[0]
		}
	}
	n := p.argument()
	if n == nil {
		return nil
	}
	return root(n, degree)
}
