package engine

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// namespace is an object whose attributes templates may set.
type namespace struct{ attrs *py.Dict }

// TypeName is Python's.
func (n *namespace) TypeName() string { return "Namespace" }

// Repr is Python's.
func (n *namespace) Repr(p py.Printer) string { return "<Namespace " + p.Repr(n.attrs) + ">" }

// Attr is an attribute that was set.
func (n *namespace) Attr(name string) (py.Value, bool) { return n.attrs.Name(name) }

// cycler goes through its items again and again.
type cycler struct {
	items []py.Value
	at    int
}

// TypeName is Python's.
func (c *cycler) TypeName() string { return "Cycler" }

// Repr is Python's.
func (c *cycler) Repr(py.Printer) string { return "<Cycler object>" }

// Attr is next, current and reset.
func (c *cycler) Attr(name string) (py.Value, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return &py.Func{Name: name, Call: func(py.Args) py.Value {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &py.Func{Name: name, Call: func(py.Args) py.Value { c.at = 0; return nil }}, true
	}
	return nil, false
}

// global is a function that every template has, nil if there is none of the name.
func (e *engine) global(name string) py.Value {
	var call func(args py.Args) py.Value
	switch name {
	case "range":
		call = e.makeRange
	case "dict":
		call = func(args py.Args) py.Value { return e.makeDict(args) }
	case "namespace":
		call = func(args py.Args) py.Value { return &namespace{attrs: e.makeDict(args)} }
	case "cycler":
		call = func(args py.Args) py.Value {
			if len(args.Pos) == 0 {
				py.Raise("RuntimeError", "at least one item has to be provided")
			}
			return &cycler{items: args.Pos}
		}
	case "joiner":
		call = func(args py.Args) py.Value {
			sep, used := py.Or(args.Take(name, "sep?")[0], ", "), false
			return &py.Func{Name: name, Call: func(py.Args) py.Value {
				if !used {
					used = true
					return ""
				}
				return sep
			}}
		}
	case "raise_exception":
		call = func(args py.Args) py.Value {
			py.Raise("TemplateError", "%s", e.Str(args.Take(name, "message")[0]))
			return nil
		}
	case "strftime_now":
		call = func(args py.Args) py.Value {
			return e.Strftime(e.now, py.WantText(name, args.Take(name, "format")[0]))
		}
	default:
		return nil
	}
	return &py.Func{Name: name, Call: call}
}

func (e *engine) makeRange(args py.Args) py.Value {
	got := args.Take("range", "start", "stop?", "step?")
	first := int64(py.WantInt(got[0]))
	if _, missing := got[1].(py.Missing); missing {
		return py.NewRange(0, first, 1)
	}
	return py.NewRange(first, int64(py.WantInt(got[1])), int64(py.WantInt(py.Or(got[2], int64(1)))))
}

func (e *engine) makeDict(args py.Args) *py.Dict {
	d := py.NewDict()
	if len(args.Pos) > 1 {
		py.Raise(py.KindType, "dict expected at most 1 argument, got %d", len(args.Pos))
	}
	if len(args.Pos) == 1 {
		e.fill(d, args.Pos[0])
	}
	for _, n := range args.Named {
		e.Set(d, n.Name, n.Value)
	}
	return d
}

// fill takes over the pairs of a mapping or of an iterable of pairs.
func (e *engine) fill(d *py.Dict, from py.Value) {
	if given, ok := from.(*py.Dict); ok {
		from = &py.View{Type: "dict_items", Dict: given}
	}
	next := e.Iterate(from)
	for i, pair := 0, py.Value(nil); ; i++ {
		var ok bool
		if pair, ok = next(); !ok {
			return
		}
		items := e.Items(pair)
		if len(items) != 2 {
			py.Raise(py.KindValue, "dictionary update sequence element #%d has length %d; 2 is required", i, len(items))
		}
		e.Set(d, items[0], items[1])
	}
}
