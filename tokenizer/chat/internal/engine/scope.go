package engine

import (
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// scope holds the variables of one body: the template's, or that of a loop, a macro or a
// block.
type scope struct {
	parent *scope // enclosing scope; nil for the root
	names  []string
	values []py.Value     // by position in names
	index  map[string]int // position in names; nil below manyNames, where a search is faster
}

// inside returns a scope for a body in scope s. hidden holds the undefined values of the
// names that the body assigns: until then, they hide variables of enclosing scopes.
func inside(s *scope, hidden []*py.Undefined) *scope {
	inner := &scope{parent: s}
	inner.hide(hidden)
	return inner
}

// hide sets the variables of hidden to their undefined values.
func (s *scope) hide(hidden []*py.Undefined) {
	for _, u := range hidden {
		name, _ := u.Name.(string)
		s.set(name, u)
	}
}

// manyNames is the number of names from which a scope has an index.
const manyNames = 8

// find returns the position of a name in s.names, or -1.
func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(s.names, name)
}

// set sets a variable of s. It never changes a parent.
func (s *scope) set(name string, v py.Value) {
	if i := s.find(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names = append(s.names, name)
	s.values = append(s.values, v)
	if len(s.names) == manyNames {
		s.index = map[string]int{}
		for i, n := range s.names {
			s.index[n] = i
		}
	} else if s.index != nil {
		s.index[name] = len(s.names) - 1
	}
}

// assign stores v in a target: a name of scope s, an attribute of a namespace, or a tuple of
// targets.
func (e *executor) assign(target syntax.Expr, v py.Value, s *scope) {
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

// unpack assigns the items of v to as many targets. It raises TypeError or ValueError if v
// does not have that many items.
func (e *executor) unpack(targets []syntax.Expr, v py.Value, s *scope) {
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
