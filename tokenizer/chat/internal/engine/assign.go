package engine

import (
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// assign stores v in a target of scope s.
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
