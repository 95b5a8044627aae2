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
	// Attribute is the target of an assignment to Name.Attr, where Name is a namespace.
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
	// Cond is "Then if Test else Else"; Else may be nil.
	Cond struct {
		Test, Then, Else Expr
		Line             int
	}
	// Logic is "X or Y" if Or is set, else "X and Y".
	Logic struct {
		Or   bool
		X, Y Expr
	}
	// Not is "not X".
	Not struct{ X Expr }
	// Compare is X Ops[0] Ys[0] Ops[1] Ys[1]…, such as a < b < c.
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
	// Concat is Parts[0] ~ Parts[1]….
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
	// Test is "X is Name(Args)".
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
	Names        []string // names of Named
	Named        []Expr   // values of named arguments
	Star, Double Expr     // values after * and **; nil if the call has none
}

// Stmt is a statement: a pointer to one of the types below.
type Stmt any

// Template is a parsed template. Hidden is as for statements.
type Template struct {
	Body   []Stmt
	Hidden []*py.Undefined
}

// Statements. Hidden holds an undefined value for each name that the body assigns and that
// is undefined until then, even if an enclosing scope has a variable of that name.
type (
	// Text is the text outside tags.
	Text struct{ Data string }
	// Print is {{ X }}.
	Print struct {
		X    Expr
		Line int
	}
	// If runs the body of the first test that holds, or else Else.
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
		Defaults                []Expr // default values of the last parameters
		Body                    []Stmt
		Caller, Varargs, Kwargs bool // the body uses the variable of this name
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
	// Scope is a body with variables of its own: with, autoescape, generation or block. With
	// Root set, the body sees only top-level variables.
	Scope struct {
		Targets, Values []Expr // variables of with, and their values
		Body            []Stmt
		Root            bool
		Hidden          []*py.Undefined
	}
	// Break leaves a loop, or continues with its next round.
	Break struct{ Continue bool }
)
