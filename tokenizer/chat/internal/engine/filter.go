package engine

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// filterFunc is a filter: v | name(args).
type filterFunc func(v py.Value, args py.Args) py.Value

// testFunc is a test: v is name(args).
type testFunc func(v py.Value, args py.Args) bool

// findFilter returns a filter by name, or nil.
func (e *executor) findFilter(name string) filterFunc {
	for _, find := range []func(string) filterFunc{
		e.textFilter, e.listFilter, e.pickFilter, e.lazyFilter, e.webFilter, e.valueFilter, e.numberFilter,
	} {
		if f := find(name); f != nil {
			return f
		}
	}
	return nil
}

// apply returns v | name(args).
func (e *executor) apply(name string, v py.Value, args py.Args) py.Value {
	f := e.findFilter(name)
	if f == nil {
		py.Raise(py.KindRuntime, "No filter named '%s' found.", name)
	}
	e.Step(1)
	return f(v, args)
}

// holds evaluates "v is name(args)".
func (e *executor) holds(name string, v py.Value, args py.Args) bool {
	f := e.findTest(name)
	if f == nil {
		py.Raise(py.KindRuntime, "No test named '%s' found.", name)
	}
	e.Step(1)
	return f(v, args)
}
