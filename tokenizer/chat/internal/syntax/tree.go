// Package syntax parses Jinja templates.
package syntax

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// Expr is an expression: a pointer to one of the types below.
type Expr any

// Expressions.
type (
	// Const is a literal.
	Const struct{ Value py.Value }
	// Name is a variable, read or assigned.
	Name struct {
		Name string
		Line int
	}
	// Attribute is a namespace's attribute that is assigned.
	Attribute struct {
		Name, Attr string
		Line       int
	}
	// Tuple is (a, b).
	Tuple struct{ Items []Expr }
	// List is [a, b].
	List struct{ Items []Expr }
	// Dict is {a: b}.
	Dict struct{ Keys, Values []Expr }
	// Cond is Then if Test else Else, which may be nil.
	Cond struct {
		Test, Then, Else Expr
		Line             int
	}
	// Logic is X and Y, or X or Y.
	Logic struct {
		Or   bool
		X, Y Expr
	}
	// Not is not X.
	Not struct{ X Expr }
	// Compare is X op Y op Y….
	Compare struct {
		X    Expr
		Ops  []string // == != < <= > >= in notin
		Ys   []Expr
		Line int
	}
	// Binary is X op Y.
	Binary struct {
		Op   string // + - * / // % **
		X, Y Expr
		Line int
	}
	// Concat is a ~ b ~ c.
	Concat struct{ Parts []Expr }
	// Unary is -X or +X.
	Unary struct {
		Minus bool
		X     Expr
		Line  int
	}
	// GetAttr is X.Name.
	GetAttr struct {
		X    Expr
		Name string
		Line int
	}
	// GetItem is X[Key].
	GetItem struct {
		X, Key Expr // Key may be a *Slice
		Line   int
	}
	// Slice is a subscript with colons. A missing part is nil.
	Slice struct{ Start, Stop, Step Expr }
	// Call is Func(Args).
	Call struct {
		Func Expr
		Args Args
		Line int
	}
	// Filter is X | Name(Args); X is nil at the head of a filter block.
	Filter struct {
		X    Expr
		Name string
		Args Args
		Line int
	}
	// Test is X is Name(Args).
	Test struct {
		X    Expr
		Name string
		Args Args
		Line int
	}
)

// Args holds the arguments of a call.
type Args struct {
	Pos          []Expr
	Names        []string
	Named        []Expr // by Names
	Star, Double Expr   // *args and **kwargs, nil if there are none
}

// Stmt is a statement: a pointer to one of the types below.
type Stmt any

// Template is a parsed template.
type Template struct {
	Body   []Stmt
	Hidden []*py.Undefined
}

// Statements. Hidden are the names that a body assigns and that are undefined
// before that, even where there is a variable of the name outside of it.
type (
	// Text is the text outside tags.
	Text struct{ Data string }
	// Print is {{ X }}.
	Print struct {
		X    Expr
		Line int
	}
	// If has a body for each test.
	If struct {
		Tests  []Expr
		Bodies [][]Stmt
		Else   []Stmt
	}
	// For is a loop; Filter is nil without an if.
	For struct {
		Target, Iter, Filter Expr
		Body, Else           []Stmt
		Recursive            bool
		Hidden, ElseHidden   []*py.Undefined // of Body and Else
		Line                 int
	}
	// Set is {% set target = X %}.
	Set struct {
		Target, X Expr
		Line      int
	}
	// SetBlock is {% set target | filter %}body{% endset %}; Filter may be nil.
	SetBlock struct {
		Target, Filter Expr
		Body           []Stmt
		Hidden         []*py.Undefined
		Line           int
	}
	// Macro is a macro, or the body of a call block.
	Macro struct {
		Name                    string
		Params                  []string
		Defaults                []Expr // of the last parameters
		Body                    []Stmt
		Caller, Varargs, Kwargs bool // it uses the name
		Hidden                  []*py.Undefined
		Line                    int
	}
	// CallBlock is {% call(params) X(…) %}body{% endcall %}.
	CallBlock struct {
		Call  *Call
		Macro *Macro
	}
	// FilterBlock is {% filter f %}body{% endfilter %}.
	FilterBlock struct {
		Filter Expr
		Body   []Stmt
		Hidden []*py.Undefined
	}
	// Scope is a body with its own variables: with, generation, block. Root means that it
	// sees only the template's variables.
	Scope struct {
		Targets, Values []Expr
		Body            []Stmt
		Root            bool
		Hidden          []*py.Undefined
	}
	// Break leaves a loop, or continues with its next round.
	Break struct{ Continue bool }
)
