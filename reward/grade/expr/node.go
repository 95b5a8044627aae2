// Package expr parses mathematical expressions in LaTeX or plain text.
//
// The texts come from models. Texts that are too long or nested too deeply are
// rejected.
package expr

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Kind is the kind of a Node.
type Kind uint8

// The kinds of nodes.
const (
	Number   Kind = iota // Value
	Symbol               // Name: a letter with its subscript, or pi, e, i, infty, ±, ∓
	Text                 // Name: words
	Sum                  // of Args
	Product              // of Args
	Power                // Args[0] to the power Args[1]
	Call                 // function Name of Args
	Bracket              // Args between Open and Close: a tuple, an interval, a set
	List                 // Args with commas or "and" between them
	Relation             // Args with Ops between them, one fewer
	Matrix               // Args are its rows, each a List
	Ratio                // Args with colons between them
	Unit                 // Args[0] measured in Name
	Label                // Args[0] after the words Name
)

// Node is an immutable expression.
type Node struct {
	Kind        Kind
	Name        string
	Value       *big.Rat // of a Number
	Places      int      // of a Number: digits written after the decimal point
	Figures     int      // of a Number: significant digits written
	Base        string   // of a Number: the base written after it, as in 52_8
	Digits      string   // of a Number: as written, without separators
	Args        []*Node
	Ops         []string // = != < <= > >= ~ in, of a Relation
	Open, Close string   // ( [ { < or | and their counterparts, of a Bracket
}

// The bounds on the input.
const (
	maxText   = 8192 // bytes
	maxTokens = 4096
	maxDepth  = 200
	maxMarks  = 16 // ^ ! % and the like after one operand
)

// Integer returns the number v.
func Integer(v int64) *Node { return &Node{Kind: Number, Value: big.NewRat(v, 1)} }

// Named returns the symbol called name.
func Named(name string) *Node { return &Node{Kind: Symbol, Name: name} }

func call(name string, args ...*Node) *Node { return &Node{Kind: Call, Name: name, Args: args} }

func power(base, exponent *Node) *Node { return &Node{Kind: Power, Args: []*Node{base, exponent}} }

// Negate returns -n.
func Negate(n *Node) *Node {
	if n.Kind == Number {
		c := *n
		c.Value, c.Digits = new(big.Rat).Neg(n.Value), "-"+n.Digits
		return &c
	}
	return Multiply(Integer(-1), n)
}

// Invert returns 1/n.
func Invert(n *Node) *Node { return power(n, Integer(-1)) }

// Multiply returns the product of args.
func Multiply(args ...*Node) *Node { return gather(Product, args) }

// Add returns the sum of args.
func Add(args ...*Node) *Node { return gather(Sum, args) }

// gather returns the sum or product of args: the only one of them, or else a node of the kind.
func gather(kind Kind, args []*Node) *Node {
	if len(args) == 1 {
		return args[0]
	}
	return &Node{Kind: kind, Args: args}
}

// root returns n to the power 1/degree.
func root(n *Node, degree *Node) *Node { return power(n, Invert(degree)) }

// Is reports whether n is the symbol name.
func (n *Node) Is(name string) bool { return n.Kind == Symbol && n.Name == name }

// inBase returns the number n in a base written as digits or a word.
func (n *Node) inBase(base string) *Node {
	c := *n
	c.Base = base
	if k := slices.Index(Numerals(), strings.ToLower(base)); k >= 2 && k <= 12 {
		c.Base = strconv.Itoa(k)
	}
	return &c
}

// isMeasured reports whether n is measured in words, not in percent or degrees.
func (n *Node) isMeasured() bool { return n.Kind == Unit && n.Name != "%" && n.Name != "deg" }

// Size returns the number of nodes in the tree.
func (n *Node) Size() int {
	total := 1
	for _, arg := range n.Args {
		total += arg.Size()
	}
	return total
}

// Has reports whether f holds for n or a node below it.
func (n *Node) Has(f func(*Node) bool) bool {
	return f(n) || slices.ContainsFunc(n.Args, func(arg *Node) bool { return arg.Has(f) })
}

// IsVariable reports whether n is a symbol without a value of its own: x, but not pi, e or i.
func (n *Node) IsVariable() bool { return n.Kind == Symbol && !n.Is("pi") && !n.Is("e") && !n.Is("i") }

// With returns a copy of n with f applied to each of its arguments.
func (n *Node) With(f func(*Node) *Node) *Node {
	c := *n
	c.Args = make([]*Node, len(n.Args))
	for i, arg := range n.Args {
		c.Args[i] = f(arg)
	}
	return &c
}

// Replaced returns n with f(m) in place of each symbol m.
func (n *Node) Replaced(f func(*Node) *Node) *Node {
	switch {
	case n.Kind == Symbol:
		return f(n)
	case len(n.Args) == 0:
		return n
	}
	return n.With(func(arg *Node) *Node { return arg.Replaced(f) })
}

// Branches returns the readings of n: n itself, or two if it contains a ±.
func (n *Node) Branches() []*Node {
	if !n.Has(func(m *Node) bool { return m.Is("±") || m.Is("∓") }) {
		return []*Node{n}
	}
	signed := func(sign int64) *Node {
		return n.Replaced(func(m *Node) *Node {
			switch m.Name {
			case "±":
				return Integer(sign)
			case "∓":
				return Integer(-sign)
			}
			return m
		})
	}
	return []*Node{signed(1), signed(-1)}
}
