package engine

import (
	"slices"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// listFilter finds the filters that process all items.
func (e *executor) listFilter(name string) filterFunc {
	switch name {
	case "list":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return &py.List{Items: e.Items(v)} }
	case "sort":
		return e.sort
	case "dictsort":
		return e.dictSort
	case "groupby":
		return e.groupBy
	case "unique":
		return e.unique
	case "min", "max":
		return func(v py.Value, args py.Args) py.Value { return e.extreme(name, v, args) }
	case "sum":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "attribute?", "start?")
			total := py.Or(got[1], int64(0))
			if _, ok := py.Text(total); ok {
				py.Raise(py.KindType, "sum() can't sum strings [use ''.join(seq) instead]")
			}
			get, next := e.getter(py.Or(got[0], nil), nil, false), e.Iterate(v)
			for item, ok := next(); ok; item, ok = next() {
				total = e.binary("+", total, get(item))
			}
			return total
		}
	case "join":
		return func(v py.Value, args py.Args) py.Value {
			got := args.Take(name, "d?", "attribute?")
			get, next := e.getter(py.Or(got[1], nil), nil, false), e.Iterate(v)
			sep, first := e.Str(py.Or(got[0], "")), true
			var b strings.Builder
			for item, ok := next(); ok; item, ok = next() {
				s := e.Str(get(item))
				if !first {
					s = sep + s
				}
				first = false
				e.Charge(len(s))
				b.WriteString(s)
			}
			return b.String()
		}
	}
	return nil
}

// sorted sorts values stably by their keys, in place. A reverse sort keeps the order of equal
// keys too, as in Python.
func (e *executor) sorted(values []py.Value, key func(py.Value) py.Value, reverse bool) []py.Value {
	type keyed struct{ key, value py.Value }
	all := make([]keyed, len(values))
	e.Charge(48 * len(values))
	for i, v := range values {
		all[i] = keyed{key(v), v}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		return e.Compare(a.key, b.key)
	})
	for i := range all {
		values[i] = all[i].value
	}
	return values
}

// sort implements the filter sort. attribute may be several paths with commas between them.
func (e *executor) sort(v py.Value, args py.Args) py.Value {
	got := args.Take("sort", "reverse?", "case_sensitive?", "attribute?")
	exact := py.Truth(py.Or(got[1], false))
	attribute := py.Or(got[2], nil)
	var keys []func(py.Value) py.Value
	if path, ok := py.Text(attribute); ok {
		for _, part := range strings.Split(path, ",") {
			keys = append(keys, e.getter(part, nil, !exact))
		}
	} else {
		keys = append(keys, e.getter(attribute, nil, !exact))
	}
	key := func(v py.Value) py.Value {
		parts := make([]py.Value, len(keys))
		for i, k := range keys {
			parts[i] = k(v)
		}
		return &py.List{Items: parts}
	}
	return &py.List{Items: e.sorted(e.Items(v), key, py.Truth(py.Or(got[0], false)))}
}

// dictSort implements the filter dictsort: the pairs of a dict, sorted by key or by value.
func (e *executor) dictSort(v py.Value, args py.Args) py.Value {
	got := args.Take("dictsort", "case_sensitive?", "by?", "reverse?")
	index := int64(0) // of the sort key in a pair
	switch by, _ := py.Text(py.Or(got[1], "key")); by {
	case "key":
	case "value":
		index = 1
	default:
		py.Raise(py.KindArgument, `You can only sort by either "key" or "value"`)
	}
	e.Check(v)
	d, ok := v.(*py.Dict)
	if !ok {
		py.Raise("AttributeError", "'%s' object has no attribute 'items'", py.TypeName(v))
	}
	key := e.getter(index, nil, !py.Truth(py.Or(got[0], false)))
	return &py.List{Items: e.sorted(e.Items(&py.View{Type: "dict_items", Dict: d}), key,
		py.Truth(py.Or(got[2], false)))}
}

// groupBy implements the filter groupby: tuples of a key and its items, sorted by key. Unless
// case_sensitive is set, keys that differ only in case share a group, which shows the key of its first
// item.
func (e *executor) groupBy(v py.Value, args py.Args) py.Value {
	got := args.Take("groupby", "attribute", "default?", "case_sensitive?")
	exact := py.Truth(py.Or(got[2], false))
	key := e.getter(got[0], py.Or(got[1], nil), !exact)
	shown := e.getter(got[0], py.Or(got[1], nil), false)
	var groups []py.Value
	var last py.Value
	var group *py.List
	for _, item := range e.sorted(e.Items(v), key, false) {
		k := key(item)
		if group == nil || !e.Equal(k, last) {
			group = e.NewList(nil)
			groups = append(groups, &py.Tuple{Items: []py.Value{shown(item), group},
				Names: []string{"grouper", "list"}})
			last = k
		}
		group.Items = append(group.Items, item)
	}
	return e.NewList(groups)
}

// unique implements the filter unique: lazily, the first item of each key.
func (e *executor) unique(v py.Value, args py.Args) py.Value {
	got := args.Take("unique", "case_sensitive?", "attribute?")
	key := e.getter(py.Or(got[1], nil), nil, !py.Truth(py.Or(got[0], false)))
	return generator(func() func() (py.Value, bool) {
		seen, next := py.NewDict(), e.Iterate(v)
		return func() (py.Value, bool) {
			for item, ok := next(); ok; item, ok = next() {
				k := key(item)
				if _, ok := e.Get(seen, k); !ok {
					e.Set(seen, k, nil)
					return item, true
				}
			}
			return nil, false
		}
	})
}

// extreme returns the first minimum or maximum.
func (e *executor) extreme(name string, v py.Value, args py.Args) py.Value {
	got := args.Take(name, "case_sensitive?", "attribute?")
	key := e.getter(py.Or(got[1], nil), nil, !py.Truth(py.Or(got[0], false)))
	op := map[string]string{"min": "<", "max": ">"}[name]
	next := e.Iterate(v)
	best, ok := next()
	if !ok {
		return &py.Undefined{Hint: "No aggregated item, sequence was empty."}
	}
	bestKey := key(best)
	for item, ok := next(); ok; item, ok = next() {
		if k := key(item); e.Order(op, k, bestKey) {
			best, bestKey = item, k
		}
	}
	return best
}

// pickFilter finds the filters that count, pick or reverse items.
func (e *executor) pickFilter(name string) filterFunc {
	none := func(word string) py.Value {
		return &py.Undefined{Hint: "No " + word + " item, sequence was empty."}
	}
	switch name {
	case "length", "count":
		return func(v py.Value, args py.Args) py.Value { args.Take(name); return int64(e.Len(v)) }
	case "first":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			item, ok := e.Iterate(v)()
			if !ok {
				return none("first")
			}
			return item
		}
	case "last":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			item, ok := e.backwards(v).Next()
			if !ok {
				return none("last")
			}
			return item
		}
	case "reverse":
		return func(v py.Value, args py.Args) py.Value {
			args.Take(name)
			if _, ok := py.Text(v); ok {
				return e.slice(v, nil, nil, int64(-1))
			}
			if it, ok := e.Reversed(v); ok {
				return it
			}
			next, ok := e.Walk(v)
			if !ok {
				py.Raise(py.KindArgument, "argument must be iterable")
			}
			items := e.Items(&py.Iter{Type: "generator", Next: next})
			slices.Reverse(items)
			return &py.List{Items: items}
		}
	}
	return nil
}

// backwards returns reversed(v). It also accepts strings.
func (e *executor) backwards(v py.Value) *py.Iter {
	if _, ok := py.Text(v); ok {
		return &py.Iter{Type: "reversed", Next: e.Iterate(e.slice(v, nil, nil, int64(-1)))}
	}
	if _, ok := v.(*py.Undefined); ok {
		return &py.Iter{Type: "reversed", Next: e.Iterate(v)}
	}
	it, ok := e.Reversed(v)
	if !ok {
		py.Raise(py.KindType, "'%s' object is not reversible", py.TypeName(v))
	}
	return it
}

// getter returns a function that gets an attribute of an item. attribute is a path with
// dots, an index, or nil for the item itself. If otherwise is not nil, it replaces each
// undefined value on the path. ignoreCase lowers the case of a string result.
func (e *executor) getter(attribute, otherwise py.Value, ignoreCase bool) func(py.Value) py.Value {
	var path []py.Value
	switch a, ok := py.Text(attribute); {
	case ok:
		for _, part := range strings.Split(a, ".") {
			if n, ok := py.Int(part, 10); ok && strings.Trim(part, "0123456789") == "" {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	case attribute != nil:
		path = []py.Value{attribute}
	}
	return func(v py.Value) py.Value {
		for _, part := range path {
			v = e.subscript(v, part)
			if _, undefined := v.(*py.Undefined); undefined && otherwise != nil {
				v = otherwise
			}
		}
		if s, ok := py.Text(v); ok && ignoreCase {
			return e.Lower(s)
		}
		return v
	}
}
