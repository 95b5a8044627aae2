// Package method implements the attributes, methods, subscripts and format strings of the
// values of package py, as templates see them.
package method

import (
	"github.com/easyrl/easyrl/tokenizer/chat/internal/format"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Machine extends py.Machine with the methods of values.
type Machine struct{ format.Formatter }

// New returns a Machine with its own budget.
func New(limits py.Limits) *Machine {
	return &Machine{Formatter: format.New(py.NewMachine(limits))}
}

// Binary returns x op y. Unlike py's, it formats strings with %.
func (m *Machine) Binary(op string, x, y py.Value) py.Value {
	if format, ok := py.Text(x); ok && op == "%" {
		_, markup := x.(py.Markup)
		return py.Like(markup, m.Percent(format, y, markup))
	}
	return m.Formatter.Binary(op, x, y)
}
