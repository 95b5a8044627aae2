package engine

import (
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// generator returns a lazy sequence. begin starts the iteration; generator calls it for the
// first item only, so that errors of the arguments appear when the sequence is used.
func generator(begin func() func() (py.Value, bool)) py.Value {
	var next func() (py.Value, bool)
	return &py.Iter{Type: "generator", Next: func() (py.Value, bool) {
		if next == nil {
			next = begin()
		}
		return next()
	}}
}

// noItems is the iteration of an empty sequence.
func noItems() (py.Value, bool) { return nil, false }

// lazyFilter finds the filters that return generators.
func (e *executor) lazyFilter(name string) filterFunc {
	switch name {
	case "map":
		return func(v py.Value, args py.Args) py.Value {
			return generator(func() func() (py.Value, bool) {
				if !py.Truth(v) {
					return noItems
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
		return e.selecting(true, e.itemTest)
	case "reject":
		return e.selecting(false, e.itemTest)
	case "selectattr":
		return e.selecting(true, e.attributeTest)
	case "rejectattr":
		return e.selecting(false, e.attributeTest)
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

// pairs iterates over the keys and values of a dict.
func (e *executor) pairs(v py.Value) func() (py.Value, bool) {
	switch v := v.(type) {
	case *py.Undefined:
		return noItems
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

// selecting returns a filter that yields the items whose test returns keep. newTest makes
// the test from the filter's arguments.
func (e *executor) selecting(keep bool, newTest func(args py.Args) func(py.Value) bool) filterFunc {
	return func(v py.Value, args py.Args) py.Value {
		return generator(func() func() (py.Value, bool) {
			if !py.Truth(v) {
				return noItems
			}
			test := newTest(args)
			next := e.Iterate(v)
			return func() (py.Value, bool) {
				for item, ok := next(); ok; item, ok = next() {
					if test(item) == keep {
						return item, true
					}
				}
				return nil, false
			}
		})
	}
}

// itemTest returns the test that args names, with the rest of args as the arguments of the
// test. Without arguments it tests for truth.
func (e *executor) itemTest(args py.Args) func(py.Value) bool {
	if len(args.Pos) == 0 {
		return py.Truth
	}
	rest := py.Args{Pos: args.Pos[1:], Named: args.Named}
	return func(v py.Value) bool { return e.holds(e.Str(args.Pos[0]), v, rest) }
}

// attributeTest is itemTest for an attribute of the items, which the first argument names.
func (e *executor) attributeTest(args py.Args) func(py.Value) bool {
	if len(args.Pos) == 0 {
		py.Raise(py.KindArgument, "Missing parameter for attribute name")
	}
	get := e.getter(args.Pos[0], nil, false)
	test := e.itemTest(py.Args{Pos: args.Pos[1:], Named: args.Named})
	return func(v py.Value) bool { return test(get(v)) }
}

// batch groups items into rows of a given length.
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
				e.Charge(16)
				row = append(row, fill)
			}
			return e.NewList(row), true
		}
	})
}

// slices divides items into a given number of rows, the first of which are longer by one
// item if the division leaves a remainder.
func (e *executor) slices(v py.Value, args py.Args) py.Value {
	got := args.Take("slice", "slices", "fill_with?")
	n, fill := py.WantInt(got[0]), py.Or(got[1], nil)
	return generator(func() func() (py.Value, bool) {
		items := e.Items(v)
		if n == 0 {
			py.Raise("ZeroDivisionError", "integer division or modulo by zero")
		}
		each, longer := len(items)/max(1, n), len(items)%max(1, n)
		i := 0 // rows returned
		return func() (py.Value, bool) {
			if i >= n {
				return nil, false
			}
			size := each
			if i < longer {
				size++
			}
			row := slices.Clone(items[:size])
			items = items[size:]
			if fill != nil && i >= longer {
				row = append(row, fill)
			}
			i++
			return e.NewList(row), true
		}
	})
}
