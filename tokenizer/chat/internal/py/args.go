package py

import "strings"

// Named is a named argument.
type Named struct {
	Name  string
	Value Value
}

// Args holds the arguments of a call.
type Args struct {
	Pos   []Value
	Named []Named
}

// Take returns one value for each parameter, as Python binds them. params are the
// names of the parameters; a trailing "?" marks an optional one, whose value is Missing
// if the call omits it. fn is the function's name, for error messages. Take raises
// TypeError if the arguments do not fit.
func (a Args) Take(fn string, params ...string) []Value {
	if len(a.Pos) > len(params) {
		Raise(KindType, "%s() takes at most %d positional arguments but %d were given", fn, len(params), len(a.Pos))
	}
	got := make([]Value, len(params))
	for i := range got {
		got[i] = Missing{}
	}
	copy(got, a.Pos)
	for _, named := range a.Named {
		index := -1
		for i, p := range params {
			if strings.TrimSuffix(p, "?") == named.Name {
				index = i
			}
		}
		if index < 0 {
			Raise(KindType, "%s() got an unexpected keyword argument '%s'", fn, named.Name)
		}
		if _, free := got[index].(Missing); !free {
			Raise(KindType, "%s() got multiple values for argument '%s'", fn, named.Name)
		}
		got[index] = named.Value
	}
	for i, p := range params {
		if _, missing := got[i].(Missing); missing && !strings.HasSuffix(p, "?") {
			Raise(KindType, "%s() missing 1 required positional argument: '%s'", fn, p)
		}
	}
	return got
}

// TakePositional is Take for functions that accept no named arguments.
func (a Args) TakePositional(fn string, params ...string) []Value {
	if len(a.Named) > 0 {
		Raise(KindType, "%s() takes no keyword arguments", fn)
	}
	return a.Take(fn, params...)
}

// Missing is the value of an omitted argument. It never reaches a template.
type Missing struct{}

// Or returns v, or otherwise if v is Missing.
func Or(v, otherwise Value) Value {
	if _, missing := v.(Missing); missing {
		return otherwise
	}
	return v
}

// WantInt returns an argument that must be a bool or an int. It raises OverflowError if
// the int exceeds 64 bits and TypeError for other types.
func WantInt(v Value) int {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case int64:
		return int(v)
	}
	if n, ok := ToBig(v); ok {
		Raise("OverflowError", "Python int too large to convert to C ssize_t: %.20s", n.String())
	}
	Raise(KindType, "'%s' object cannot be interpreted as an integer", TypeName(v))
	return 0
}

// WantText returns an argument of fn that must be a str or a Markup. It raises TypeError
// otherwise.
func WantText(fn string, v Value) string {
	s, ok := Text(v)
	if !ok {
		Raise(KindType, "%s() argument must be str, not %s", fn, TypeName(v))
	}
	return s
}

// Dict implements dict(args…): the pairs of a mapping or of an iterable of pairs, and the
// named arguments.
func (m *Machine) Dict(args Args) *Dict {
	d := NewDict()
	if len(args.Pos) > 1 {
		Raise(KindType, "dict expected at most 1 argument, got %d", len(args.Pos))
	}
	if len(args.Pos) == 1 {
		m.fill(d, args.Pos[0])
	}
	for _, n := range args.Named {
		m.Set(d, n.Name, n.Value)
	}
	return d
}

// fill copies the pairs of a mapping or of an iterable of pairs into d.
func (m *Machine) fill(d *Dict, from Value) {
	if mapping, ok := from.(*Dict); ok {
		from = &View{Type: "dict_items", Dict: mapping}
	}
	next := m.Iterate(from)
	i := 0
	for pair, ok := next(); ok; pair, ok = next() {
		items := m.Items(pair)
		if len(items) != 2 {
			Raise(KindValue, "dictionary update sequence element #%d has length %d; 2 is required", i, len(items))
		}
		m.Set(d, items[0], items[1])
		i++
	}
}
