// Package engine runs parsed Jinja templates.
package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct{ parsed *syntax.Template }

// Parse parses a template; errors are of type *py.Error.
func Parse(source string) (*Template, error) {
	e := &engine{Machine: method.New(py.Limits{})}
	parsed, err := syntax.Parse(source, syntax.Known{
		Filter: func(name string) bool { return e.filter(name) != nil },
		Test:   func(name string) bool { return e.test(name) != nil },
	})
	if err != nil {
		return nil, err
	}
	return &Template{parsed: parsed}, nil
}

// engine is one rendering.
type engine struct {
	*method.Machine
	out  *strings.Builder
	root *scope
	line int
	now  time.Time
}

// scope is a level of variables.
type scope struct {
	parent *scope
	names  []string
	values []py.Value
	index  map[string]int // of names, once they are many
}

// inside is a scope for a body in scope s.
func inside(s *scope, hidden []*py.Undefined) *scope {
	inner := &scope{parent: s}
	inner.hide(hidden)
	return inner
}

func (s *scope) hide(hidden []*py.Undefined) {
	for _, u := range hidden {
		name, _ := u.Name.(string)
		s.set(name, u)
	}
}

// manyNames is when a scope gets an index.
const manyNames = 8

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(s.names, name)
}

func (s *scope) set(name string, v py.Value) {
	if i := s.find(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
	if len(s.names) == manyNames {
		s.index = map[string]int{}
		for i, n := range s.names {
			s.index[n] = i
		}
	} else if s.index != nil {
		s.index[name] = len(s.names) - 1
	}
}

// Render renders the template with the variables that vars makes within the
// rendering's limits; errors are of type *py.Error or vars' own.
func (t *Template) Render(limits py.Limits, now time.Time, vars func(m *py.Machine) (*py.Dict, error)) (text string, err error) {
	e := &engine{Machine: method.New(limits), out: &strings.Builder{}, root: &scope{}, now: now}
	defer py.Catch(&err, &e.line)
	given, err := vars(e.Machine.Machine)
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

// lookup is the value of a name.
func (e *engine) lookup(name string, s *scope) py.Value {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.values[i]
		}
	}
	if v := e.global(name); v != nil {
		return v
	}
	return &py.Undefined{Name: name}
}

func (e *engine) write(s string) {
	e.Grow(len(s))
	e.out.WriteString(s)
}

// capture is what f writes.
func (e *engine) capture(f func()) string {
	out := e.out
	e.out = &strings.Builder{}
	f()
	text := e.out.String()
	e.out = out
	return text
}

// assign stores v in a target of scope s.
func (e *engine) assign(target syntax.Expr, v py.Value, s *scope) {
	switch t := target.(type) {
	case *syntax.Name:
		s.set(t.Name, v)
	case *syntax.Attribute:
		ns, ok := e.lookup(t.Name, s).(*namespace)
		if !ok {
			py.RaiseAt(t.Line, py.KindRuntime, "cannot assign attribute on non-namespace object")
		}
		e.Set(ns.attrs, t.Attr, v)
	case *syntax.Tuple:
		e.unpack(t.Items, v, s)
	}
}

func (e *engine) unpack(targets []syntax.Expr, v py.Value, s *scope) {
	next, ok := e.Walk(v)
	if !ok {
		py.Raise(py.KindType, "cannot unpack non-iterable %s object", py.TypeName(v))
	}
	var items []py.Value
	for item, ok := next(); ok; item, ok = next() {
		if len(items) == len(targets) {
			py.Raise(py.KindValue, "too many values to unpack (expected %d)", len(targets))
		}
		items = append(items, item)
	}
	if len(items) < len(targets) {
		py.Raise(py.KindValue, "not enough values to unpack (expected %d, got %d)", len(targets), len(items))
	}
	for i, target := range targets {
		e.assign(target, items[i], s)
	}
}
