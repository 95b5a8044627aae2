// Package engine runs parsed Jinja templates: their statements and expressions, Jinja's
// filters, tests and globals, and the attributes, methods and formats of Python's values.
package engine

import (
	"strings"
	"time"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct{ parsed *syntax.Template }

// Parse parses a template; errors are of type *py.Error.
func Parse(source string) (*Template, error) {
	library := executor{Machine: py.NewMachine(py.Limits{})}
	parsed, err := syntax.Parse(source, syntax.Known{
		Filter: func(name string) bool { return library.findFilter(name) != nil },
		Test:   func(name string) bool { return library.findTest(name) != nil },
	})
	if err != nil {
		return nil, err
	}
	return &Template{parsed: parsed}, nil
}

// Render renders the template with the variables that vars returns, within limits. Errors
// are of type *py.Error or come from vars.
func (t *Template) Render(limits py.Limits, now time.Time, vars func(m *py.Machine) (*py.Dict, error)) (
	text string, err error) {
	e := &executor{Machine: py.NewMachine(limits), now: now, out: &strings.Builder{}, root: &scope{}}
	defer py.Catch(&err, &e.line)
	given, err := vars(e.Machine)
	if err != nil {
		return "", err
	}
	for i := range given.Len() {
		key, v := given.At(i)
		e.root.set(e.Str(key), v)
	}
	e.body(t.parsed.Body, inside(e.root, t.parsed.Hidden))
	return e.out.String(), nil
}
