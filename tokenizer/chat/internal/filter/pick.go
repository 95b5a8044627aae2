package filter

import (
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// picks implements the filters that take parts of a sequence.
type picks struct{ *method.Machine }

func (f picks) find(name string) Func {
	none := func(word string) py.Value {
		return &py.Undefined{Hint: "No " + word + " item, sequence was empty."}
	}
	switch name {
	case "length", "count":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return int64(f.Len(v)) }
	case "first":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			item, ok := f.Iterate(v)()
			if !ok {
				return none("first")
			}
			return item
		}
	case "last":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			item, ok := f.backwards(v).Next()
			if !ok {
				return none("last")
			}
			return item
		}
	case "reverse":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			if _, ok := py.Text(v); ok {
				return f.Slice(v, nil, nil, int64(-1))
			}
			if it, ok := f.Reversed(v); ok {
				return it
			}
			next, ok := f.Walk(v)
			if !ok {
				py.Raise(py.KindArgument, "argument must be iterable")
			}
			items := f.Items(&py.Iter{Type: "generator", Next: next})
			slices.Reverse(items)
			return &py.List{Items: items}
		}
	}
	return nil
}

// backwards returns reversed(v). It also accepts strings.
func (f picks) backwards(v py.Value) *py.Iter {
	if _, ok := py.Text(v); ok {
		return &py.Iter{Type: "reversed", Next: f.Iterate(f.Slice(v, nil, nil, int64(-1)))}
	}
	if _, ok := v.(*py.Undefined); ok {
		return &py.Iter{Type: "reversed", Next: f.Iterate(v)}
	}
	it, ok := f.Reversed(v)
	if !ok {
		py.Raise(py.KindType, "'%s' object is not reversible", py.TypeName(v))
	}
	return it
}
