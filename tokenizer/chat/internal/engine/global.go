package engine

import "github.com/easyrl/easyrl/tokenizer/chat/internal/py"

// namespace is Jinja's namespace(): an object whose attributes templates may set, also from
// within loops.
type namespace struct{ attrs *py.Dict }

// TypeName returns Python's name of the type.
func (n *namespace) TypeName() string { return "Namespace" }

// Repr returns Python's repr.
func (n *namespace) Repr(m *py.Machine) string { return "<Namespace " + m.Repr(n.attrs) + ">" }

// Attr returns an attribute that was set.
func (n *namespace) Attr(name string) (py.Value, bool) { return n.attrs.GetString(name) }

// cycler is Jinja's cycler(): it cycles through its items.
type cycler struct {
	items []py.Value // not empty
	at    int        // index of the current item
}

// TypeName returns Python's name of the type.
func (c *cycler) TypeName() string { return "Cycler" }

// Repr returns Python's repr.
func (c *cycler) Repr(*py.Machine) string { return "<Cycler object>" }

// Attr returns next, current and reset.
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

// global returns a global by name, or nil.
func (e *executor) global(name string) py.Value {
	var call func(args py.Args) py.Value
	switch name {
	case "range":
		call = newRange
	case "dict":
		call = func(args py.Args) py.Value { return e.Dict(args) }
	case "namespace":
		call = func(args py.Args) py.Value { return &namespace{attrs: e.Dict(args)} }
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
			return e.strftime(e.now, py.WantText(name, args.Take(name, "format")[0]))
		}
	default:
		return nil
	}
	return &py.Func{Name: name, Call: call}
}

// newRange implements range(stop) and range(start, stop[, step]).
func newRange(args py.Args) py.Value {
	got := args.Take("range", "start", "stop?", "step?")
	first := int64(py.WantInt(got[0]))
	if _, missing := got[1].(py.Missing); missing {
		return py.NewRange(0, first, 1)
	}
	return py.NewRange(first, int64(py.WantInt(got[1])), int64(py.WantInt(py.Or(got[2], int64(1)))))
}
