package filter

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// lists implements the filters that sort and group.
type lists struct{ *method.Machine }

func (f lists) find(name string) Func {
	switch name {
	case "list":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return &py.List{Items: f.Items(v)} }
	case "sort":
		return f.sort
	case "dictsort":
		return f.dictSort
	case "groupby":
		return f.groupBy
	case "unique":
		return f.unique
	case "min", "max":
		return func(v py.Value, args py.Args) py.Value { return f.extreme(name, v, args) }
	case "sum":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "attribute?", "start?")
			total := py.Or(got[1], int64(0))
			if _, ok := py.Text(total); ok {
				py.Raise(py.KindType, "sum() can't sum strings [use ''.join(seq) instead]")
			}
			get, next := getter(f.Machine, py.Or(got[0], nil), nil, false), f.Iterate(v)
			for item, ok := next(); ok; item, ok = next() {
				total = f.Binary("+", total, get(item))
			}
			return total
		}
	case "join":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "d?", "attribute?")
			get, next := getter(f.Machine, py.Or(got[1], nil), nil, false), f.Iterate(v)
			sep, first := f.Str(py.Or(got[0], "")), true
			var b strings.Builder
			for item, ok := next(); ok; item, ok = next() {
				s := f.Str(get(item))
				if !first {
					s = sep + s
				}
				first = false
				f.Grow(len(s))
				b.WriteString(s)
			}
			return b.String()
		}
	}
	return nil
}

// order compares for sorting.
func (f lists) order(a, b py.Value) int {
	switch {
	case f.Order("<", a, b):
		return -1
	case f.Order("<", b, a):
		return 1
	}
	return 0
}

// sorted sorts values stably by their keys.
func (f lists) sorted(values []py.Value, key func(py.Value) py.Value, reverse bool) []py.Value {
	type keyed struct{ key, value py.Value }
	all := make([]keyed, len(values))
	f.Grow(48 * len(values))
	for i, v := range values {
		all[i] = keyed{key(v), v}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		return f.order(a.key, b.key)
	})
	for i := range all {
		values[i] = all[i].value
	}
	return values
}

func (f lists) sort(v py.Value, args py.Args) py.Value {
	got := args.Take("sort", "reverse?", "case_sensitive?", "attribute?")
	exact := py.Truth(py.Or(got[1], false))
	attribute := py.Or(got[2], nil)
	var keys []func(py.Value) py.Value
	if path, ok := py.Text(attribute); ok {
		for _, part := range strings.Split(path, ",") {
			keys = append(keys, getter(f.Machine, part, nil, !exact))
		}
	} else {
		keys = append(keys, getter(f.Machine, attribute, nil, !exact))
	}
	key := func(v py.Value) py.Value {
		parts := make([]py.Value, len(keys))
		for i, k := range keys {
			parts[i] = k(v)
		}
		return &py.List{Items: parts}
	}
	return &py.List{Items: f.sorted(f.Items(v), key, py.Truth(py.Or(got[0], false)))}
}

func (f lists) dictSort(v py.Value, args py.Args) py.Value {
	got := args.Take("dictsort", "case_sensitive?", "by?", "reverse?")
	at := int64(0)
	switch by, _ := py.Text(py.Or(got[1], "key")); by {
	case "key":
	case "value":
		at = 1
	default:
		py.Raise(py.KindArgument, `You can only sort by either "key" or "value"`)
	}
	f.Check(v)
	d, ok := v.(*py.Dict)
	if !ok {
		py.Raise("AttributeError", "'%s' object has no attribute 'items'", py.TypeName(v))
	}
	key := getter(f.Machine, at, nil, !py.Truth(py.Or(got[0], false)))
	return &py.List{Items: f.sorted(f.Items(&py.View{Type: "dict_items", Dict: d}), key, py.Truth(py.Or(got[2], false)))}
}

func (f lists) groupBy(v py.Value, args py.Args) py.Value {
	got := args.Take("groupby", "attribute", "default?", "case_sensitive?")
	exact := py.Truth(py.Or(got[2], false))
	key := getter(f.Machine, got[0], py.Or(got[1], nil), !exact)
	shown := getter(f.Machine, got[0], py.Or(got[1], nil), false)
	var groups []py.Value
	var last py.Value
	var group *py.List
	for _, item := range f.sorted(f.Items(v), key, false) {
		k := key(item)
		if group == nil || !f.Equal(k, last) {
			group = f.NewList(nil)
			groups = append(groups, &py.Tuple{Items: []py.Value{shown(item), group}, Names: []string{"grouper", "list"}})
			last = k
		}
		group.Items = append(group.Items, item)
	}
	return f.NewList(groups)
}

func (f lists) unique(v py.Value, args py.Args) py.Value {
	got := args.Take("unique", "case_sensitive?", "attribute?")
	key := getter(f.Machine, py.Or(got[1], nil), nil, !py.Truth(py.Or(got[0], false)))
	return generator(func() func() (py.Value, bool) {
		seen, next := py.NewDict(), f.Iterate(v)
		return func() (py.Value, bool) {
			for item, ok := next(); ok; item, ok = next() {
				k := key(item)
				if _, ok := f.Get(seen, k); !ok {
					f.Set(seen, k, nil)
					return item, true
				}
			}
			return nil, false
		}
	})
}

func (f lists) extreme(name string, v py.Value, args py.Args) py.Value {
	got := args.Take(name, "case_sensitive?", "attribute?")
	key := getter(f.Machine, py.Or(got[1], nil), nil, !py.Truth(py.Or(got[0], false)))
	op := map[string]string{"min": "<", "max": ">"}[name]
	next := f.Iterate(v)
	best, ok := next()
	if !ok {
		return &py.Undefined{Hint: "No aggregated item, sequence was empty."}
	}
	bestKey := key(best)
	for item, ok := next(); ok; item, ok = next() {
		if k := key(item); f.Order(op, k, bestKey) {
			best, bestKey = item, k
		}
	}
	return best
}
