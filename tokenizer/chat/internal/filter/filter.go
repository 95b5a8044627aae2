// Package filter implements Jinja's filters and tests.
package filter

import (
	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Func is a filter: v | name(args).
type Func func(v py.Value, args py.Args) py.Value

// Test is a test: v is name(args).
type Test func(v py.Value, args py.Args) bool

// Library finds and applies filters and tests by name.
type Library struct{ *method.Machine }

// Filter returns a filter by name, or nil.
func (l Library) Filter(name string) Func {
	for _, find := range []func(string) Func{
		texts(l).find, lists(l).find, picks(l).find, lazies{l}.find,
		web(l).find, values(l).find, numbers(l).find,
	} {
		if f := find(name); f != nil {
			return f
		}
	}
	return nil
}

// Test returns a test by name, or nil.
func (l Library) Test(name string) Test { return tests{l}.find(name) }

// Apply returns v | name(args).
func (l Library) Apply(name string, v py.Value, args py.Args) py.Value {
	f := l.Filter(name)
	if f == nil {
		py.Raise(py.KindRuntime, "No filter named '%s' found.", name)
	}
	l.Step(1)
	return f(v, args)
}

// Holds evaluates "v is name(args)".
func (l Library) Holds(name string, v py.Value, args py.Args) bool {
	f := l.Test(name)
	if f == nil {
		py.Raise(py.KindRuntime, "No test named '%s' found.", name)
	}
	l.Step(1)
	return f(v, args)
}
