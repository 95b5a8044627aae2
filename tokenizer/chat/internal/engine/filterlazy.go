package engine

import (
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// generator returns a lazy sequence that calls begin for its first item.
func generator(begin func() func() (py.Value, bool)) py.Value {
	var next func() (py.Value, bool)
	return &py.Iter{Type: "generator", Next: func() (py.Value, bool) {
		if next == nil {
			next = begin()
		}
		return next()
	}}
}

func ended() (py.Value, bool) { return nil, false }

func (e *executor) lazyFilter(name string) filterFunc {
	switch name {
	case "map":
		return func(v py.Value, args py.Args) py.Value {
			return generator(func() func() (py.Value, bool) {
				if !py.Truth(v) {
					return ended
				}
				change, next := e.mapping(args), e.Iterate(v)
				return func() (py.Value, bool) {
					item, ok := next()
					if !ok {
						return nil, false
					}
					return change(item), true
				}
			})
		}
	case "select":
		return e.selecting(true, false)
	case "reject":
		return e.selecting(false, false)
	case "selectattr":
		return e.selecting(true, true)
	case "rejectattr":
		return e.selecting(false, true)
	case "items":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			return generator(func() func() (py.Value, bool) { return e.pairs(v) })
		}
	case "batch":
		return e.batch
	case "slice":
		return e.slices
	}
	return nil
}

func (e *executor) pairs(v py.Value) func() (py.Value, bool) {
	switch v := v.(type) {
	case *py.Undefined:
		return ended
	case *py.Dict:
		return e.Iterate(&py.View{Type: "dict_items", Dict: v})
	}
	py.Raise(py.KindType, "Can only get item pairs from a mapping.")
	return nil
}

// mapping returns the function that map applies to each item.
func (e *executor) mapping(args py.Args) func(py.Value) py.Value {
	if len(args.Pos) == 0 && len(args.Named) > 0 {
		for _, n := range args.Named {
			if n.Name != "attribute" && n.Name != "default" {
				py.Raise(py.KindArgument, "Unexpected keyword argument %s", e.Quote(n.Name))
			}
		}
		got := args.Take("map", "attribute", "default?")
		return e.getter(got[0], py.Or(got[1], nil), false)
	}
	if len(args.Pos) == 0 {
		py.Raise(py.KindArgument, "map requires a filter argument")
	}
	rest := py.Args{Pos: args.Pos[1:], Named: args.Named}
	return func(item py.Value) py.Value { return e.apply(e.Str(args.Pos[0]), item, rest) }
}

// selecting keeps the items that pass a test, or those that fail it. attr means that the
// first argument names the attribute to test.
func (e *executor) selecting(keep, attr bool) filterFunc {
	return func(v py.Value, args py.Args) py.Value {
		return generator(func() func() (py.Value, bool) {
			if !py.Truth(v) {
				return ended
			}
			pass, next := e.passes(args, attr), e.Iterate(v)
			return func() (py.Value, bool) {
				for item, ok := next(); ok; item, ok = next() {
					if pass(item) == keep {
						return item, true
					}
				}
				return nil, false
			}
		})
	}
}

func (e *executor) passes(args py.Args, attr bool) func(py.Value) bool {
	get := func(v py.Value) py.Value { return v }
	pos := args.Pos
	if attr {
		if len(pos) == 0 {
			py.Raise(py.KindArgument, "Missing parameter for attribute name")
		}
		get, pos = e.getter(pos[0], nil, false), pos[1:]
	}
	if len(pos) == 0 {
		return func(v py.Value) bool { return py.Truth(get(v)) }
	}
	rest := py.Args{Pos: pos[1:], Named: args.Named}
	return func(v py.Value) bool { return e.holds(e.Str(pos[0]), get(v), rest) }
}

func (e *executor) batch(v py.Value, args py.Args) py.Value {
	got := args.Take("batch", "linecount", "fill_with?")
	n, fill := py.WantInt(got[0]), py.Or(got[1], nil)
	return generator(func() func() (py.Value, bool) {
		next := e.Iterate(v)
		return func() (py.Value, bool) {
			var row []py.Value
			for len(row) < max(1, n) {
				item, ok := next()
				if !ok {
					break
				}
				row = append(row, item)
			}
			if len(row) == 0 {
				return nil, false
			}
			for fill != nil && len(row) < n {
				e.Grow(16)
				row = append(row, fill)
			}
			return e.NewList(row), true
		}
	})
}

func (e *executor) slices(v py.Value, args py.Args) py.Value {
	got := args.Take("slice", "slices", "fill_with?")
	n, fill := py.WantInt(got[0]), py.Or(got[1], nil)
	return generator(func() func() (py.Value, bool) {
		items := e.Items(v)
		if n == 0 {
			py.Raise("ZeroDivisionError", "integer division or modulo by zero")
		}
		each, longer, at, i := len(items)/max(1, n), len(items)%max(1, n), 0, 0
		return func() (py.Value, bool) {
			if i >= n {
				return nil, false
			}
			size := each
			if i < longer {
				size++
			}
			row := append([]py.Value(nil), items[at:at+size]...)
			if fill != nil && i >= longer {
				row = append(row, fill)
			}
			at, i = at+size, i+1
			return e.NewList(row), true
		}
	})
}
