package py

// Walker iterates over values.
type Walker struct{ *Budget }

// Iterate implements iter(v): it returns a function that returns the next item. It raises
// if v is not iterable.
func (w Walker) Iterate(v Value) func() (Value, bool) {
	next, ok := w.Walk(v)
	if !ok {
		Raise(KindType, "'%s' object is not iterable", TypeName(v))
	}
	return next
}

// Walk is like Iterate but reports whether v is iterable.
func (w Walker) Walk(v Value) (next func() (Value, bool), ok bool) {
	switch v := v.(type) {
	case *List:
		return w.each(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Tuple:
		return w.each(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Dict:
		return w.each(v.Len(), func(i int) Value { return v.keys[i] }), true
	case *View:
		return w.each(v.Dict.Len(), v.at), true
	case *Range:
		return w.each(v.Len(), func(i int) Value { return v.Start + int64(i)*v.Step }), true
	case *Undefined:
		return w.each(0, nil), true
	case *Iter:
		return func() (Value, bool) {
			w.Step(1)
			w.Enter()
			defer w.Leave()
			return v.Next()
		}, true
	case interface{ Iterate() func() (Value, bool) }:
		return v.Iterate(), true
	}
	if s, ok := Text(v); ok {
		return func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			w.Step(1)
			n := RuneLen(s)
			c := s[:n]
			s = s[n:]
			return c, true
		}, true
	}
	return nil, false
}

func (w Walker) each(n int, at func(i int) Value) func() (Value, bool) {
	i := 0
	return func() (Value, bool) {
		if i >= n {
			return nil, false
		}
		w.Step(1)
		i++
		return at(i - 1), true
	}
}

func (v *View) at(i int) Value {
	key, value := v.Dict.At(i)
	switch v.Type {
	case "dict_keys":
		return key
	case "dict_values":
		return value
	}
	return &Tuple{Items: []Value{key, value}}
}

// Items returns the items of list(v). The caller may change the slice.
func (w Walker) Items(v Value) []Value {
	var items []Value
	next := w.Iterate(v)
	for item, ok := next(); ok; item, ok = next() {
		w.Grow(16)
		items = append(items, item)
	}
	return items
}

// Reversed implements reversed(v). ok is false if v has no order to reverse.
func (w Walker) Reversed(v Value) (it *Iter, ok bool) {
	back := func(name string, n int, at func(i int) Value) (*Iter, bool) {
		next := w.each(n, func(i int) Value { return at(n - 1 - i) })
		return &Iter{Type: name, Next: next}, true
	}
	switch v := v.(type) {
	case *List:
		return back("list_reverseiterator", len(v.Items), func(i int) Value { return v.Items[i] })
	case *Tuple:
		return back("reversed", len(v.Items), func(i int) Value { return v.Items[i] })
	case *Dict:
		return back("dict_reversekeyiterator", v.Len(), func(i int) Value { return v.keys[i] })
	case *View:
		return back("reversed", v.Dict.Len(), v.at)
	case *Range:
		return back("range_iterator", v.Len(), func(i int) Value { return v.Start + int64(i)*v.Step })
	}
	return nil, false
}
