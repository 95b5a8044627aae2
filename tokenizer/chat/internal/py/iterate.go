package py

// Iterate implements iter(v). The function that it returns returns the next item, or false
// at the end. Iterate raises TypeError if v is not iterable.
func (m *Machine) Iterate(v Value) func() (Value, bool) {
	next, ok := m.Walk(v)
	if !ok {
		Raise(KindType, "'%s' object is not iterable", TypeName(v))
	}
	return next
}

// Walk is like Iterate, but returns ok false where Iterate raises.
func (m *Machine) Walk(v Value) (next func() (Value, bool), ok bool) {
	switch v := v.(type) {
	case *List:
		return m.each(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Tuple:
		return m.each(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Dict:
		return m.each(v.Len(), func(i int) Value { return v.keys[i] }), true
	case *View:
		return m.each(v.Dict.Len(), v.item), true
	case *Range:
		return m.each(v.Len(), func(i int) Value { return v.Start + int64(i)*v.Step }), true
	case *Undefined:
		return m.each(0, nil), true
	case *Iter:
		return func() (Value, bool) {
			m.Step(1)
			m.Enter()
			defer m.Leave()
			return v.Next()
		}, true
	}
	if s, ok := Text(v); ok {
		return func() (Value, bool) {
			if s == "" {
				return nil, false
			}
			m.Step(1)
			n := RuneLen(s)
			c := s[:n]
			s = s[n:]
			return c, true
		}, true
	}
	return nil, false
}

// each iterates over at(0) to at(n-1).
func (m *Machine) each(n int, at func(i int) Value) func() (Value, bool) {
	i := 0
	return func() (Value, bool) {
		if i >= n {
			return nil, false
		}
		m.Step(1)
		i++
		return at(i - 1), true
	}
}

// item returns the i-th item of the view: a key, a value, or a tuple of both.
func (v *View) item(i int) Value {
	key, value := v.Dict.At(i)
	switch v.Type {
	case "dict_keys":
		return key
	case "dict_values":
		return value
	}
	return &Tuple{Items: []Value{key, value}}
}

// Items returns the items of list(v), in a new slice that the caller owns.
func (m *Machine) Items(v Value) []Value {
	var items []Value
	next := m.Iterate(v)
	for item, ok := next(); ok; item, ok = next() {
		m.Charge(16)
		items = append(items, item)
	}
	return items
}

// Reversed implements reversed(v). ok is false if Python would raise TypeError.
func (m *Machine) Reversed(v Value) (it *Iter, ok bool) {
	reverse := func(name string, n int, at func(i int) Value) (*Iter, bool) {
		next := m.each(n, func(i int) Value { return at(n - 1 - i) })
		return &Iter{Type: name, Next: next}, true
	}
	switch v := v.(type) {
	case *List:
		return reverse("list_reverseiterator", len(v.Items), func(i int) Value { return v.Items[i] })
	case *Tuple:
		return reverse("reversed", len(v.Items), func(i int) Value { return v.Items[i] })
	case *Dict:
		return reverse("dict_reversekeyiterator", v.Len(), func(i int) Value { return v.keys[i] })
	case *View:
		return reverse("reversed", v.Dict.Len(), v.item)
	case *Range:
		return reverse("range_iterator", v.Len(), func(i int) Value { return v.Start + int64(i)*v.Step })
	}
	return nil, false
}
