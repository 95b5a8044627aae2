// Package py implements the values that templates compute with: Python's, printed,
// compared, combined and turned to JSON as in Python, with the methods of str, within a
// budget.
package py

import "fmt"

// Limits bounds one rendering.
type Limits struct {
	Steps int64 // evaluated nodes, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// Machine computes with values and counts how much of its Limits one rendering has
// used: the interpreter of a template that nobody trusts must end. It serves one
// rendering, on one goroutine.
type Machine struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// NewMachine returns a Machine that has used nothing.
func NewMachine(limits Limits) *Machine { return &Machine{limits: limits} }

// Step uses n steps.
func (m *Machine) Step(n int) {
	m.steps += int64(n)
	if m.steps > m.limits.Steps {
		Raise(KindLimit, "template takes more than %d steps", m.limits.Steps)
	}
}

// Grow uses n bytes. Call it before allocating them.
func (m *Machine) Grow(n int) {
	m.bytes += int64(n)
	if n < 0 || m.bytes > m.limits.Bytes {
		Raise(KindLimit, "template allocates more than %d bytes", m.limits.Bytes)
	}
	m.Step(1 + n/64)
}

// Scan uses the steps for reading n bytes.
func (m *Machine) Scan(n int) { m.Step(n / 64) }

// Enter enters a level of nesting; Leave must follow.
func (m *Machine) Enter() {
	m.depth++
	if m.depth > m.limits.Depth {
		Raise(KindLimit, "template or its data nests deeper than %d levels", m.limits.Depth)
	}
}

// Leave leaves a level of nesting.
func (m *Machine) Leave() { m.depth-- }

// Times raises the limit if n copies of size bytes are too many.
func (m *Machine) Times(size, n int) {
	if size > 0 && n > int(m.limits.Bytes)/size {
		n = int(m.limits.Bytes)/size + 1
	}
	m.Grow(size * n)
}

// NewList returns a list that owns items.
func (m *Machine) NewList(items []Value) *List {
	m.Grow(24 + 16*len(items))
	return &List{Items: items}
}

// Kinds of Error that callers distinguish.
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

// Error stops a template.
type Error struct {
	Kind    string // the Python exception's name, or KindLimit
	Message string
	Line    int // of the template, from 1; 0 if unknown
}

// Error returns the kind, the message and the line.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Kind + ": " + e.Message
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

// Raise panics with an *Error, which Catch recovers.
func Raise(kind, format string, args ...any) { RaiseAt(0, kind, format, args...) }

// RaiseAt is Raise at a line of the template.
func RaiseAt(line int, kind, format string, args ...any) {
	panic(&Error{Kind: kind, Message: fmt.Sprintf(format, args...), Line: line})
}

// Catch is deferred at the boundary of the interpreter. It stores a raised error in err,
// at line if the error has none.
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
