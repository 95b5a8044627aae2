package expr

import (
	"math/big"
	"strings"
)

// stream is a cursor over tokens. A copy looks ahead; assigning it back consumes what
// it has read.
type stream struct {
	in []token
	at int
}

// ahead returns the token n places ahead. Past the end its kind is tEnd.
func (s *stream) ahead(n int) token {
	if s.at+n < len(s.in) {
		return s.in[s.at+n]
	}
	return token{}
}

func (s *stream) peek() token { return s.ahead(0) }

func (s *stream) isOp(texts ...string) bool { return s.peek().isOp(texts...) }

// next consumes the next token.
func (s *stream) next() token {
	t := s.peek()
	s.at = min(s.at+1, len(s.in))
	return t
}

// accept consumes the next token if it is the given one.
func (s *stream) accept(k kind, text string) bool {
	t := s.peek()
	if t.kind != k || t.text != text {
		return false
	}
	s.at++
	return true
}

// skip consumes a run of one operator and reports whether it consumed any.
func (s *stream) skip(op string) bool {
	at := s.at
	for s.accept(tOp, op) {
	}
	return s.at > at
}

// take consumes one of the operators and returns it.
func (s *stream) take(texts ...string) (string, bool) {
	if !s.isOp(texts...) {
		return "", false
	}
	return s.next().text, true
}

// numeral returns the number n with the base or the fraction that follows it.
func (s *stream) numeral(n *Node) *Node {
	if s.accept(tOp, "_") {
		return n.inBase(strings.Trim(s.subscript(), "{}"))
	}
	if base := s.base(); base != "" {
		return n.inBase(base)
	}
	if n.Value.IsInt() && n.Places == 0 {
		if f := s.fraction(); f != nil {
			return &Node{Kind: Number, Value: f.Add(n.Value, f)}
		}
	}
	return n
}

// integer consumes a whole number, or returns nil.
func (s *stream) integer() *big.Int {
	t := s.peek()
	if t.kind != tNumber || !t.node.Value.IsInt() || t.node.Places > 0 {
		return nil
	}
	s.at++
	return t.node.Value.Num()
}

// part consumes a whole number with or without braces, or returns nil.
func (s *stream) part() *big.Int {
	braced := s.accept(tOpen, "group")
	n := s.integer()
	if braced && !s.accept(tClose, "group") {
		return nil
	}
	return n
}

// fraction consumes the proper fraction of a mixed number, or returns nil: \frac{1}{2},
// or 1/2 after a space.
func (s *stream) fraction() *big.Rat {
	look := *s
	var num, den *big.Int
	if look.accept(tFunc, "frac") {
		num, den = look.part(), look.part()
	} else if look.peek().spaced {
		num = look.integer()
		if look.accept(tOp, "/") {
			den = look.integer()
		}
	}
	if num == nil || den == nil || num.Sign() <= 0 || num.Cmp(den) >= 0 {
		return nil
	}
	*s = look
	return new(big.Rat).SetFrac(num, den)
}

// base consumes words after a number that name its base, as in "base 8", "in base
// eight" and "(base 8)", and returns it, or "".
func (s *stream) base() string {
	look := *s
	bracketed := look.peek().kind == tOpen
	if bracketed {
		look.next()
	}
	look.accept(tWord, "in")
	if t := look.next(); t.kind != tWord || !strings.EqualFold(t.text, "base") {
		return ""
	}
	base := ""
	switch t := look.next(); t.kind {
	case tNumber:
		base = t.node.Digits
	case tWord:
		base = t.text
	}
	if base == "" || bracketed && look.next().kind != tClose {
		return ""
	}
	*s = look
	return base
}

// degree consumes a degree sign, with or without braces.
func (s *stream) degree() bool {
	look := *s
	braced := look.accept(tOpen, "group")
	if !look.accept(tOp, "deg") || braced && look.next().kind != tClose {
		return false
	}
	*s = look
	return true
}

// subscript consumes what follows a _ and returns its text.
func (s *stream) subscript() string {
	var b strings.Builder
	for depth := 0; s.peek().kind != tEnd; {
		t := s.next()
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

// scale consumes a word such as million and multiplies the number n by it. It reports whether n is a plain
// number and such a word is next.
func (s *stream) scale(n **Node) bool {
	if (*n).Kind != Number || (*n).Base != "" {
		return false
	}
	times, ok := map[string]int64{"hundred": 100, "thousand": 1e3, "million": 1e6, "billion": 1e9,
		"trillion": 1e12}[strings.ToLower(s.peek().text)]
	if !ok {
		return false
	}
	s.next()
	c := **n
	c.Value, c.Places, c.Digits = new(big.Rat).Mul(c.Value, big.NewRat(times, 1)), 0, ""
	*n = &c
	return true
}

// runsOn reports whether a number follows another number, or a fraction or root, without
// an operator. "4 5" lists numbers; it is not their product.
func (s *stream) runsOn() bool {
	if s.at == 0 || s.peek().kind != tNumber {
		return false
	}
	last := s.in[s.at-1]
	return last.kind == tNumber || last.kind == tClose && last.text == "group"
}
