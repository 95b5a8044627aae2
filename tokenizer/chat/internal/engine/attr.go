package engine

import (
	"math"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// attr returns v.name. ok is false if Python would raise AttributeError.
func (e *executor) attr(v py.Value, name string) (attr py.Value, ok bool) {
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") {
		return e.unsafe(v, name), true
	}
	switch v := v.(type) {
	case string, py.Markup:
		return e.textMethod(v, name)
	case *py.Dict:
		return e.dictMethod(v, name)
	case *py.List:
		if slices.Contains([]string{"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"}, name) {
			return e.unsafe(v, name), true
		}
		if name == "copy" {
			return &py.Func{Name: name,
				Call: func(args py.Args) py.Value { args.TakePositional(name); return e.NewList(v.Items) }}, true
		}
		return e.sequenceMethod(v, v.Items, name)
	case *py.Tuple:
		for i, n := range v.Names {
			if n == name {
				return v.Items[i], true
			}
		}
		return e.sequenceMethod(v, v.Items, name)
	case *py.Range:
		switch name {
		case "start":
			return v.Start, true
		case "stop":
			return v.Stop, true
		case "step":
			return v.Step, true
		case "index", "count":
			return e.sequenceMethod(v, e.Items(v), name)
		}
	case bool, int64, float64:
		return numberMethod(v, name)
	case py.Object:
		return v.Attr(name)
	}
	return nil, false
}

// unsafe returns the undefined value for an attribute that templates must not use: one
// that could change values or reach Python's internals. Jinja's ImmutableSandboxedEnvironment
// forbids the same.
func (e *executor) unsafe(v py.Value, name string) py.Value {
	hint := "access to attribute " + e.Quote(name) + " of " + e.Quote(py.TypeName(v)) + " object is unsafe."
	return &py.Undefined{Hint: hint, Name: name, Kind: py.KindSecurity}
}

// dictMethod returns a bound method of a dict.
func (e *executor) dictMethod(d *py.Dict, name string) (py.Value, bool) {
	if slices.Contains([]string{"clear", "pop", "popitem", "setdefault", "update"}, name) {
		return e.unsafe(d, name), true
	}
	var call func(args py.Args) py.Value
	switch name {
	case "keys", "values", "items":
		call = func(args py.Args) py.Value {
			args.TakePositional(name)
			return &py.View{Type: "dict_" + name, Dict: d}
		}
	case "get":
		call = func(args py.Args) py.Value {
			got := args.TakePositional(name, "key", "default?")
			if v, ok := e.Get(d, got[0]); ok {
				return v
			}
			return py.Or(got[1], nil)
		}
	case "copy":
		call = func(args py.Args) py.Value {
			args.TakePositional(name)
			c := py.NewDict()
			for i := range d.Len() {
				key, value := d.At(i)
				e.Set(c, key, value)
			}
			return c
		}
	default:
		return nil, false
	}
	return &py.Func{Name: name, Call: call}, true
}

// sequenceMethod returns a bound count or index method of v, whose items are items.
func (e *executor) sequenceMethod(v py.Value, items []py.Value, name string) (py.Value, bool) {
	switch name {
	case "count":
		return &py.Func{Name: name, Call: func(args py.Args) py.Value {
			want, n := args.TakePositional(name, "value")[0], int64(0)
			for _, item := range items {
				if e.Equal(item, want) {
					n++
				}
			}
			return n
		}}, true
	case "index":
		return &py.Func{Name: name, Call: func(args py.Args) py.Value {
			got := args.TakePositional(name, "value", "start?", "stop?")
			window := newSpan(len(items), py.Or(got[1], nil), py.Or(got[2], nil), nil)
			for i := window.lo; i < window.hi; i++ {
				if e.Equal(items[i], got[0]) {
					return int64(i)
				}
			}
			py.Raise(py.KindValue, "%s is not in %s", e.Repr(got[0]), py.TypeName(v))
			return nil
		}}, true
	}
	return nil, false
}

// numberMethod returns an attribute or a bound method of a bool, int64 or float64.
func numberMethod(v py.Value, name string) (py.Value, bool) {
	switch name {
	case "real", "numerator":
		return py.Plus(v), true
	case "is_integer":
		f, isFloat := v.(float64)
		if !isFloat {
			return nil, false
		}
		return &py.Func{Name: name, Call: func(args py.Args) py.Value {
			args.TakePositional(name)
			return f == math.Trunc(f) && !math.IsInf(f, 0)
		}}, true
	case "bit_length":
		n, isInt := py.ToBig(v)
		if !isInt {
			return nil, false
		}
		return &py.Func{Name: name, Call: func(args py.Args) py.Value {
			args.TakePositional(name)
			return int64(n.BitLen())
		}}, true
	}
	return nil, false
}
