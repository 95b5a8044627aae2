package expr

import (
	"slices"
	"strings"
)

// parser is a recursive descent parser over tokens. Its rules, from loosest to
// tightest:
//
//	groups    rows ; rows
//	list      relation , relation
//	relation  sets = sets
//	sets      ratio ∪ ratio
//	ratio     sum : sum
//	sum       term + term
//	term      factor factor / factor
//	factor    - factor, primary ^ factor, primary !
//
// A rule returns nil if the tokens do not match it, and its callers do too.
type parser struct {
	stream
	depth int // of rules that call each other
	scope scope
}

// enter counts a level and reports whether it is within bounds. Call leave after it.
func (p *parser) enter() bool {
	p.depth++
	return p.depth <= maxDepth
}

// leave ends the level that enter counted.
func (p *parser) leave() { p.depth-- }

// scope is what the brackets around an expression mean for its tokens.
type scope struct {
	pipes int  // number of open |
	set   bool // inside \{ and before a bar: a condition follows the bar
}

// starts reports whether a factor without a sign can begin with t.
func (s scope) starts(t token) bool {
	switch t.kind {
	case tNumber, tSymbol, tFunc, tWord, tOpen, tMatrix:
		return true
	case tOp:
		return t.text == "$" || s.pipes == 0 && (t.text == "||" || (t.text == "|" || t.text == "mid") && !s.set)
	}
	return false
}

// ends reports whether an expression ends before t.
func (s scope) ends(t token) bool {
	return t.kind == tEnd || t.kind == tClose || t.kind == tFinish || t.isOp(";", ",", "&", "row") ||
		s.pipes > 0 && t.isOp("|", "||", "mid")
}

// Parse parses s and reports whether all of it is an expression.
func Parse(s string, mode Mode) (*Node, bool) {
	if len(s) > maxText {
		return nil, false
	}
	tokens, ok := lex(s, mode)
	if !ok || len(tokens) == 0 {
		return nil, false
	}
	p := &parser{stream: stream{in: tokens}}
	n := p.groups()
	if n == nil || p.at < len(p.in) {
		return nil, false
	}
	return n, true
}

// groups parses lists between semicolons: 1, 2; 3, 4.
func (p *parser) groups() *Node {
	n := p.list()
	if n == nil || !p.isOp(";") {
		return n
	}
	items := []*Node{n}
	for p.accept(tOp, ";") && !p.scope.ends(p.peek()) {
		if n = p.list(); n == nil {
			return nil
		}
		items = append(items, n)
	}
	return &Node{Kind: List, Args: items}
}

// list parses relations between commas, or a single one.
func (p *parser) list() *Node {
	p.skip(",") // as in ", and 5"
	n := p.relation()
	if n == nil {
		return nil
	}
	items := []*Node{n}
	for p.skip(",") && !p.scope.ends(p.peek()) {
		if n = p.relation(); n == nil {
			return nil
		}
		items = append(items, n)
	}
	if len(items) == 1 {
		return items[0]
	}
	return &Node{Kind: List, Args: items}
}

// relation parses a chain such as a < b = c, or a single side. A relation sign in front, as in "= 5", does
// not count.
func (p *parser) relation() *Node {
	defer p.leave()
	if !p.enter() {
		return nil
	}
	var n *Node
	p.take("~", "=") // "≈ 8.24", "= 5"
	if n = p.sets(); n == nil {
		return nil
	}
	rel := &Node{Kind: Relation, Args: []*Node{n}}
	for {
		op, ok := p.take("=", "!=", "<", "<=", ">", ">=", "~", "in", "equiv")
		if !ok {
			break
		}
		if next, both := p.take("=", "~"); both && op != next && (op == "<" || op == ">") {
			op += "="
		}
		if p.scope.ends(p.peek()) { // "x ="
			return nil
		}
		if n = p.sets(); n == nil {
			return nil
		}
		rel.Ops = append(rel.Ops, op)
		rel.Args = append(rel.Args, n)
	}
	if len(rel.Ops) == 0 {
		return rel.Args[0]
	}
	return rel
}

// sets parses unions, intersections and differences of sets, from left to right.
func (p *parser) sets() *Node {
	n := p.ratio()
	for n != nil {
		op, ok := p.take("cup", "cap", `\`)
		if !ok {
			break
		}
		m := p.ratio()
		if m == nil {
			return nil
		}
		if n.Kind == Call && n.Name == op {
			n = call(op, append(n.Args[:len(n.Args):len(n.Args)], m)...)
		} else {
			n = call(op, n, m)
		}
	}
	return n
}

// ratio parses what has a colon: a ratio 2:3, a time 8:34 pm or a label "Area: 5". It also parses a
// binomial coefficient "n choose k".
func (p *parser) ratio() *Node {
	n := p.sum()
	if n == nil {
		return nil
	}
	if p.accept(tOp, "choose") {
		m := p.sum()
		if m == nil {
			return nil
		}
		n = call("binom", n, m)
	}
	if !p.isOp(":") || p.scope.set {
		return n
	}
	r := &Node{Kind: Ratio, Args: []*Node{n}}
	for p.accept(tOp, ":") {
		if p.scope.ends(p.peek()) && n.Kind == Text { // "Answer:"
			return n
		}
		if n = p.sum(); n == nil {
			return nil
		}
		r.Args = append(r.Args, n)
	}
	last := len(r.Args) - 1
	if r.Args[0].Kind == Text && last == 1 { // "Area: 5"
		return &Node{Kind: Label, Name: r.Args[0].Name, Args: r.Args[1:]}
	}
	if unit := r.Args[last]; unit.Kind == Unit { // 8:34 pm
		r.Args[last] = unit.Args[0]
		return &Node{Kind: Unit, Name: unit.Name, Args: []*Node{r}}
	}
	return r
}

// sum parses terms with signs between them. A unit of the last term applies to the entire sum: 3 + 4 cm.
func (p *parser) sum() *Node {
	var args []*Node
	for first := true; ; first = false {
		op, ok := p.take("+", "-", "±", "∓")
		if !ok && !first {
			break
		}
		n := p.term()
		if n == nil {
			return nil
		}
		switch op {
		case "-":
			n = minus(n)
		case "±", "∓":
			n = Multiply(Named(op), n)
		}
		args = append(args, n)
	}
	if len(args) == 1 {
		return args[0]
	}
	if last := args[len(args)-1]; last.isMeasured() { // (3 + 4) cm
		args[len(args)-1] = last.Args[0]
		return &Node{Kind: Unit, Name: last.Name, Args: []*Node{Add(args...)}}
	}
	return Add(args...)
}

// minus negates n but keeps its unit outside.
func minus(n *Node) *Node {
	if n.Kind == Unit || n.Kind == Label {
		return n.With(minus)
	}
	return Negate(n)
}

// term parses a product and its unit, or words and what they introduce.
func (p *parser) term() *Node {
	if p.peek().kind == tWord {
		return p.labelled()
	}
	var args []*Node
	unit := ""
	for {
		op, signed := "", false
		if len(args) > 0 {
			op, signed = p.take("*", "/", "mod")
		}
		t := p.peek()
		if !signed && !p.scope.starts(t) {
			break
		}
		if t.kind == tWord {
			if k := len(args) - 1; k >= 0 && (unit == "" || unit == "dollars") && !signed && p.scale(&args[k]) {
				continue
			}
			words := p.text()
			if words == nil {
				return nil
			}
			unit = strings.TrimSpace(unit + " " + op + words.Name)
			continue
		}
		if unit != "" || !signed && p.runsOn() { // a caller handles a number among words
			return nil
		}
		n := p.factor()
		switch {
		case n == nil:
			return nil
		case len(args) > 0 && onlyWords(n): // 5 \frac{\text{m}}{\text{s}}
			unit = unitName(n)
			continue
		case n.isMeasured() && (len(args) > 0 || p.scope.starts(p.peek())):
			unit, n = n.Name, n.Args[0]
		}
		switch op {
		case "/":
			n = Invert(n)
		case "mod":
			n, args = call("mod", Multiply(args...), n), nil
		}
		args = append(args, n)
	}
	if len(args) == 0 {
		return nil
	}
	n := Multiply(args...)
	if unit != "" {
		return &Node{Kind: Unit, Name: unit, Args: []*Node{n}}
	}
	return n
}

// labelled parses words and what they introduce.
func (p *parser) labelled() *Node {
	words := p.text()
	if words == nil {
		return nil
	}
	if p.accept(tOp, "_") { // a subscript belongs to the words
		words.Name += "_" + p.subscript()
	}
	if !p.scope.starts(p.peek()) {
		return words
	}
	n := p.term()
	if n == nil {
		return nil
	}
	return &Node{Kind: Label, Name: words.Name, Args: []*Node{n}}
}

// text joins the next words and the powers of their units.
func (p *parser) text() *Node {
	var words []string
	for p.peek().kind == tWord {
		words = append(words, p.next().text)
		if p.accept(tOp, "^") {
			n := p.primary()
			if n == nil {
				return nil
			}
			if n.Kind == Number {
				words[len(words)-1] += "^" + n.Digits
			}
		} else if p.accept(tOp, "'") { // boys', Janet's
			for p.peek().kind == tSymbol && !p.peek().spaced {
				p.next()
			}
		}
	}
	return &Node{Kind: Text, Name: strings.Join(words, " ")}
}

// onlyWords reports whether n is a quotient of words.
func onlyWords(n *Node) bool {
	switch n.Kind {
	case Product:
		return !slices.ContainsFunc(n.Args, func(arg *Node) bool { return arg.Kind != Text && !onlyWords(arg) })
	case Power:
		return n.Args[0].Kind == Text || onlyWords(n.Args[0])
	}
	return false
}

// unitName returns the name of the unit that a quotient of words writes: km/h.
func unitName(n *Node) string {
	switch {
	case n.Kind == Text || n.Kind == Symbol:
		return n.Name
	case n.Kind == Power && n.Args[1].Kind == Number && n.Args[1].Value.Sign() > 0:
		return unitName(n.Args[0]) + "^" + n.Args[1].Value.RatString()
	case n.Kind == Power:
		return "/" + unitName(n.Args[0])
	}
	name := ""
	for _, arg := range n.Args {
		name = strings.TrimSpace(name + " " + unitName(arg))
	}
	return strings.ReplaceAll(name, " /", "/")
}

// Measured returns a number times symbols as a number in the unit that the symbols write: 5 m/s.
// It returns another n as it is.
func Measured(n *Node) *Node {
	if n.Kind != Product || len(n.Args) < 2 || n.Args[0].Kind != Number {
		return n
	}
	return &Node{Kind: Unit, Name: unitName(Multiply(n.Args[1:]...)), Args: n.Args[:1]}
}
