// Package py has the values that templates compute with: Python's, printed,
// compared and combined as Python does it, within a budget.
package py

import "fmt"

// Limits are what one rendering may use.
type Limits struct {
	Steps int64 // evaluated nodes, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// Kinds of Error that callers tell apart.
const (
	KindLimit     = "LimitError"
	KindSyntax    = "TemplateSyntaxError"
	KindAssertion = "TemplateAssertionError"
	KindRuntime   = "TemplateRuntimeError"
	KindArgument  = "FilterArgumentError"
	KindUndefined = "UndefinedError"
	KindSecurity  = "SecurityError"
	KindType      = "TypeError"
	KindValue     = "ValueError"
)

// Error is what stops a template.
type Error struct {
	Kind    string // the Python exception's name, or KindLimit
	Message string
	Line    int // of the template, from 1; 0 if unknown
}

// Error is the kind, the message and the line.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Kind + ": " + e.Message
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Raise panics with an *Error; Catch turns it into an error again.
func Raise(kind, format string, args ...any) { RaiseAt(0, kind, format, args...) }

// RaiseAt is Raise at a line of the template.
func RaiseAt(line int, kind, format string, args ...any) {
	panic(&Error{Kind: kind, Message: fmt.Sprintf(format, args...), Line: line})
}

// Catch is deferred where errors leave the interpreter: it stores what Raise
// threw in err, at line if it has no line yet.
func Catch(err *error, line *int) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		if r.Line == 0 {
			r.Line = *line
		}
		*err = r
	default:
		panic(r)
	}
}

// Machine computes within Limits. It serves one rendering, on one goroutine.
type Machine struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// NewMachine makes a Machine that has used nothing yet.
func NewMachine(limits Limits) *Machine { return &Machine{limits: limits} }

// Step takes n steps from the budget.
func (m *Machine) Step(n int) {
	m.steps += int64(n)
	if m.steps > m.limits.Steps {
		Raise(KindLimit, "the template takes more than %d steps", m.limits.Steps)
	}
}

// Grow takes n bytes from the budget, before they are allocated.
func (m *Machine) Grow(n int) {
	m.bytes += int64(n)
	if n < 0 || m.bytes > m.limits.Bytes {
		Raise(KindLimit, "the template makes more than %d bytes", m.limits.Bytes)
	}
	m.Step(1 + n/64)
}

// Scan takes the steps for looking at n bytes.
func (m *Machine) Scan(n int) { m.Step(n / 64) }

// Enter goes a level deeper; Leave must follow.
func (m *Machine) Enter() {
	m.depth++
	if m.depth > m.limits.Depth {
		Raise(KindLimit, "the template or its data nests deeper than %d levels", m.limits.Depth)
	}
}

// Leave comes back from the level that Enter went to.
func (m *Machine) Leave() { m.depth-- }

// NewList makes a list of items, which it owns from now on.
func (m *Machine) NewList(items []Value) *List {
	m.Grow(24 + 16*len(items))
	return &List{Items: items}
}
