package expr

import "strings"

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
type parser struct {
	in    []token
	at    int
	depth int
	bad   bool
	pipes int  // number of open |
	set   bool // inside \{ and before a bar: a condition follows the bar
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
	p := &parser{in: tokens}
	n := p.groups()
	if n == nil || p.bad || p.at < len(p.in) {
		return nil, false
	}
	return n, true
}

func (p *parser) peek() token {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return token{}
}

func (p *parser) isOp(texts ...string) bool {
	t := p.peek()
	if t.kind != tOp {
		return false
	}
	for _, text := range texts {
		if t.text == text {
			return true
		}
	}
	return false
}

// take consumes one of the operators and returns it.
func (p *parser) take(texts ...string) (string, bool) {
	if !p.isOp(texts...) {
		return "", false
	}
	p.at++
	return p.in[p.at-1].text, true
}

func (p *parser) fail() *Node {
	p.bad = true
	return nil
}

// enter counts a level of nesting. The caller decrements depth.
func (p *parser) enter() bool {
	p.depth++
	p.bad = p.bad || p.depth > maxDepth
	return !p.bad
}

func (p *parser) groups() *Node {
	n := p.list()
	if n == nil || !p.isOp(";") {
		return n
	}
	items := []*Node{n}
	for {
		if _, ok := p.take(";"); !ok {
			break
		}
		if p.ends() {
			break
		}
		if n = p.list(); n == nil {
			return nil
		}
		items = append(items, n)
	}
	return &Node{Kind: List, Args: items}
}

// ends reports whether the expression cannot continue.
func (p *parser) ends() bool {
	t := p.peek()
	return t.kind == tEnd || t.kind == tClose || t.kind == tFinish || p.isOp(";", ",", "&", "row") || p.pipes > 0 && p.isOp("|", "||", "mid")
}

func (p *parser) list() *Node {
	for { // a leading separator, as in ", and 5"
		if _, ok := p.take(","); !ok {
			break
		}
	}
	n := p.relation()
	if n == nil || !p.isOp(",") {
		return n
	}
	items := []*Node{n}
	for {
		more := false
		for {
			if _, ok := p.take(","); !ok {
				break
			}
			more = true
		}
		if !more || p.ends() {
			break
		}
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

func (p *parser) relation() *Node {
	if !p.enter() {
		return nil
	}
	defer func() { p.depth-- }()
	var n *Node
	if p.isOp("~", "=") { // "≈ 8.24", "= 5"
		p.at++
	}
	if n = p.sets(); n == nil {
		return nil
	}
	rel := &Node{Kind: Relation, Args: []*Node{n}}
	for {
		op, ok := p.take("=", "!=", "<", "<=", ">", ">=", "~", "in")
		if !ok {
			break
		}
		if next, both := p.take("=", "~"); both && op != next && (op == "<" || op == ">") {
			op += "="
		}
		if p.ends() { // "x ="
			return p.fail()
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

func (p *parser) ratio() *Node {
	n := p.sum()
	if n != nil && p.isOp("choose") {
		p.at++
		m := p.sum()
		if m == nil {
			return nil
		}
		n = call("binom", n, m)
	}
	if n == nil || !p.isOp(":") || p.set {
		return n
	}
	r := &Node{Kind: Ratio, Args: []*Node{n}}
	for {
		if _, ok := p.take(":"); !ok {
			break
		}
		if p.ends() && n.Kind == Text { // "Answer:"
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
	if last := args[len(args)-1]; last.Kind == Unit && last.Name != "%" && last.Name != "deg" { // (3 + 4) cm
		args[len(args)-1] = last.Args[0]
		return &Node{Kind: Unit, Name: last.Name, Args: []*Node{Add(args...)}}
	}
	return Add(args...)
}

// minus negates n but keeps its unit outside.
func minus(n *Node) *Node {
	if n.Kind == Unit || n.Kind == Label {
		c := *n
		c.Args = []*Node{minus(n.Args[0])}
		return &c
	}
	return Negate(n)
}

// starts reports whether a factor without a sign can begin here.
func (p *parser) starts() bool {
	t := p.peek()
	switch t.kind {
	case tNumber, tSymbol, tFunc, tWord, tOpen, tMatrix:
		return true
	case tOp:
		return t.text == "$" || t.text == "|" && p.pipes == 0 && !p.set || t.text == "||" && p.pipes == 0
	}
	return false
}

func (p *parser) term() *Node {
	var args []*Node
	unit := ""
	for {
		op, signed := "", false
		if len(args) > 0 || unit != "" {
			op, signed = p.take("*", "/", "mod")
		}
		if !signed && !p.starts() {
			break
		}
		if p.peek().kind == tWord {
			if len(args) == 0 && unit == "" {
				label := p.words()
				return p.labelled(label)
			}
			unit = strings.TrimSpace(unit + " " + op + p.words())
			continue
		}
		if unit != "" { // the caller handles a number among words
			return p.fail()
		}
		n := p.factor()
		if n == nil {
			return nil
		}
		if len(args) > 0 && onlyWords(n) { // 5 \frac{\text{m}}{\text{s}}
			unit = "per"
			continue
		}
		if n.Kind == Unit && (len(args) > 0 || p.starts()) && n.Name != "%" && n.Name != "deg" {
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
		return p.fail()
	}
	n := Multiply(args...)
	if unit != "" {
		return &Node{Kind: Unit, Name: unit, Args: []*Node{n}}
	}
	return n
}

// onlyWords reports whether n is a quotient of words.
func onlyWords(n *Node) bool {
	switch n.Kind {
	case Product:
		for _, arg := range n.Args {
			if arg.Kind != Text && !onlyWords(arg) {
				return false
			}
		}
		return true
	case Power:
		return n.Args[0].Kind == Text || onlyWords(n.Args[0])
	}
	return false
}

// words joins the next words and the powers of their units.
func (p *parser) words() string {
	var words []string
	for p.peek().kind == tWord {
		words = append(words, p.peek().text)
		p.at++
		if _, ok := p.take("^"); ok {
			n := p.primary()
			if n != nil && n.Kind == Number {
				words[len(words)-1] += "^" + n.Digits
			}
		} else if _, ok = p.take("'"); ok { // boys', Janet's
			for p.peek().kind == tSymbol && !p.peek().spaced {
				p.at++
			}
		}
	}
	return strings.Join(words, " ")
}

// labelled parses words and what they introduce.
func (p *parser) labelled(words string) *Node {
	if p.isOp("_") { // a subscript belongs to the words
		p.at++
		words += "_" + p.subscript()
	}
	if !p.starts() {
		return &Node{Kind: Text, Name: words}
	}
	n := p.term()
	if n == nil {
		return nil
	}
	return &Node{Kind: Label, Name: words, Args: []*Node{n}}
}
