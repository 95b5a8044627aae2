package engine

import (
	"math/big"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// findTest returns a test by name, or nil.
func (e *executor) findTest(name string) testFunc {
	if f := e.ofType(name); f != nil {
		return func(v py.Value, args py.Args) bool {
			args.Take(name)
			return f(v)
		}
	}
	pair := func(f func(x, y py.Value) bool) testFunc {
		return func(v py.Value, args py.Args) bool { return f(v, args.Take(name, "other")[0]) }
	}
	order := func(op string) testFunc {
		return pair(func(x, y py.Value) bool { return e.Order(op, x, y) })
	}
	switch name {
	case "==", "eq", "equalto":
		return pair(func(x, y py.Value) bool { return e.Equal(x, y) })
	case "!=", "ne":
		return pair(func(x, y py.Value) bool { return !e.Equal(x, y) })
	case ">", "gt", "greaterthan":
		return order(">")
	case ">=", "ge":
		return order(">=")
	case "<", "lt", "lessthan":
		return order("<")
	case "<=", "le":
		return order("<=")
	case "in":
		return pair(func(x, y py.Value) bool { return e.Contains(y, x) })
	case "sameas":
		return pair(e.same)
	case "divisibleby":
		return func(v py.Value, args py.Args) bool {
			return e.Equal(e.binary("%", v, args.Take(name, "num")[0]), int64(0))
		}
	}
	return nil
}

// same evaluates "x is y" as far as Python defines it.
func (e *executor) same(x, y py.Value) bool {
	if py.TypeName(x) != py.TypeName(y) {
		return false
	}
	if _, ok := py.Text(x); ok || py.IsNumber(x) {
		return e.Equal(x, y)
	}
	return x == y
}

// ofType finds the tests without arguments. It returns nil if there is none of that name.
func (e *executor) ofType(name string) func(v py.Value) bool {
	remainder := func(want int64) func(v py.Value) bool {
		return func(v py.Value) bool { return e.Equal(e.binary("%", v, int64(2)), want) }
	}
	switch name {
	case "odd":
		return remainder(1)
	case "even":
		return remainder(0)
	case "defined":
		return func(v py.Value) bool { _, ok := v.(*py.Undefined); return !ok }
	case "undefined":
		return func(v py.Value) bool { _, ok := v.(*py.Undefined); return ok }
	case "none":
		return func(v py.Value) bool { return v == nil }
	case "boolean":
		return func(v py.Value) bool { _, ok := v.(bool); return ok }
	case "true", "false":
		return func(v py.Value) bool { b, ok := v.(bool); return ok && b == (name == "true") }
	case "integer":
		return func(v py.Value) bool {
			switch v.(type) {
			case int64, *big.Int:
				return true
			}
			return false
		}
	case "float":
		return func(v py.Value) bool { _, ok := v.(float64); return ok }
	case "number":
		return py.IsNumber
	case "string":
		return func(v py.Value) bool { _, ok := py.Text(v); return ok }
	case "mapping":
		return func(v py.Value) bool { _, ok := v.(*py.Dict); return ok }
	}
	return e.ofShape(name)
}

// ofShape finds the tests without arguments that accept several types.
func (e *executor) ofShape(name string) func(v py.Value) bool {
	switch name {
	case "lower", "upper":
		return func(v py.Value) bool { return py.IsCase(e.Str(v), name == "upper") }
	case "sequence":
		return func(v py.Value) bool {
			switch v.(type) {
			case string, py.Markup, *py.List, *py.Tuple, *py.Dict, *py.Range, *py.Undefined:
				return true
			}
			return false
		}
	case "iterable":
		return func(v py.Value) bool { _, ok := e.Walk(v); return ok }
	case "callable":
		return func(v py.Value) bool {
			switch v.(type) {
			case *py.Func, *py.Undefined, interface{ Call(py.Args) py.Value }:
				return true
			}
			return false
		}
	case "escaped":
		return func(v py.Value) bool { _, ok := v.(py.Markup); return ok }
	case "filter":
		return func(v py.Value) bool { s, ok := py.Text(v); return ok && e.findFilter(s) != nil }
	case "test":
		return func(v py.Value) bool { s, ok := py.Text(v); return ok && e.findTest(s) != nil }
	}
	return nil
}
