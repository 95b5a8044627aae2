// Package py implements the values that templates compute with: Python's, printed,
// compared, combined and turned to JSON as in Python, with the methods of str, within a
// budget.
package py

import "fmt"

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
