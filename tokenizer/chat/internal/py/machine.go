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
// used, because untrusted templates must end. A method that exceeds a limit raises a
// KindLimit error. A Machine serves one rendering, on one goroutine.
type Machine struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// NewMachine returns a Machine that has used nothing.
func NewMachine(limits Limits) *Machine { return &Machine{limits: limits} }

// Step charges n steps.
func (m *Machine) Step(n int) {
	m.steps += int64(n)
	if m.steps > m.limits.Steps {
		Raise(KindLimit, "template takes more than %d steps", m.limits.Steps)
	}
}

// Charge charges n bytes, and the steps for writing them. Call it before allocating n bytes.
func (m *Machine) Charge(n int) {
	m.bytes += int64(n)
	if n < 0 || m.bytes > m.limits.Bytes { // n < 0: the caller's product overflowed
		Raise(KindLimit, "template allocates more than %d bytes", m.limits.Bytes)
	}
	m.Step(1 + n/64)
}

// Scan charges the steps for reading n bytes.
func (m *Machine) Scan(n int) { m.Step(n / 64) }

// Enter enters a level of nesting, which Leave must end.
func (m *Machine) Enter() {
	m.depth++
	if m.depth > m.limits.Depth {
		Raise(KindLimit, "template or its data nests deeper than %d levels", m.limits.Depth)
	}
}

// Leave leaves a level of nesting.
func (m *Machine) Leave() { m.depth-- }

// ChargeCopies charges n copies of size bytes, without overflow.
func (m *Machine) ChargeCopies(size, n int) {
	if size > 0 && n > int(m.limits.Bytes)/size {
		n = int(m.limits.Bytes)/size + 1 // already more than the limit
	}
	m.Charge(size * n)
}

// NewList returns a list that owns items.
func (m *Machine) NewList(items []Value) *List {
	m.Charge(24 + 16*len(items))
	return &List{Items: items}
}

// Kinds of Error: KindLimit, and the names of frequent exceptions of Jinja and Python.
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

// Catch recovers a raised *Error and stores it in err; defer it at the boundary of the
// interpreter. An error without a line gets *line. Other panics continue.
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
