package engine

import (
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// macro is a macro as a value.
type macro struct {
	e     *executor
	def   *syntax.Macro
	scope *scope // scope of the definition, whose variables the body sees
}

// TypeName returns Python's name of the type.
func (c *macro) TypeName() string { return "Macro" }

// Repr returns Python's repr.
func (c *macro) Repr(m *py.Machine) string { return "<Macro " + m.Quote(c.def.Name) + ">" }

// Attr returns the macro's attributes.
func (c *macro) Attr(name string) (py.Value, bool) {
	switch name {
	case "name":
		return c.def.Name, true
	case "caller":
		return c.def.Caller, true
	case "catch_kwargs":
		return c.def.Kwargs, true
	case "catch_varargs":
		return c.def.Varargs, true
	case "arguments":
		var names []py.Value
		for _, p := range c.def.Params {
			names = append(names, p)
		}
		return &py.Tuple{Items: names}, true
	}
	return nil, false
}

// Call renders the macro.
func (c *macro) Call(args py.Args) py.Value {
	c.e.Enter()
	defer c.e.Leave()
	s := inside(c.scope, c.def.Hidden)
	given := c.bind(args, s)
	required := len(c.def.Params) - len(c.def.Defaults) // the last parameters have the defaults
	for i, name := range c.def.Params {
		if given[i] {
			continue
		}
		if i >= required {
			s.set(name, c.e.eval(c.def.Defaults[i-required], s))
		} else {
			s.set(name, &py.Undefined{Hint: "parameter " + c.e.Quote(name) + " was not provided", Name: name})
		}
	}
	return c.e.capture(func() { c.e.body(c.def.Body, s) })
}

// bind stores the arguments as the macro's variables and reports which of the
// parameters were given.
func (c *macro) bind(args py.Args, s *scope) []bool {
	def := c.def
	given := make([]bool, len(def.Params))
	named := slices.Clone(args.Named)
	pop := func(name string) (py.Value, bool) {
		i := slices.IndexFunc(named, func(n py.Named) bool { return n.Name == name })
		if i < 0 {
			return nil, false
		}
		v := named[i].Value
		named = slices.Delete(named, i, i+1)
		return v, true
	}
	for i, name := range def.Params {
		c.e.Step(1 + len(named))
		if i < len(args.Pos) {
			s.set(name, args.Pos[i])
			given[i] = true
		} else if v, ok := pop(name); ok {
			s.set(name, v)
			given[i] = true
		}
	}
	if def.Caller && !slices.Contains(def.Params, "caller") {
		v, _ := pop("caller")
		if v == nil {
			v = &py.Undefined{Hint: "No caller defined", Name: "caller"}
		}
		s.set("caller", v)
	}
	c.bindExtra(args, named, s)
	return given
}

// bindExtra stores the arguments that match no parameter as varargs and kwargs, if the macro
// uses these names. Otherwise it raises TypeError if there are any. named holds the named
// ones.
func (c *macro) bindExtra(args py.Args, named []py.Named, s *scope) {
	def := c.def
	switch {
	case def.Kwargs && !slices.Contains(def.Params, "kwargs"):
		d := py.NewDict()
		for _, n := range named {
			c.e.Set(d, n.Name, n.Value)
		}
		s.set("kwargs", d)
	case len(named) > 0 && named[0].Name == "caller":
		py.Raise(py.KindType,
			"macro '%s' was invoked with two values for the special caller argument. This is most likely a bug.",
			def.Name)
	case len(named) > 0:
		py.Raise(py.KindType, "macro '%s' takes no keyword argument '%s'", def.Name, named[0].Name)
	}
	extra := args.Pos[min(len(def.Params), len(args.Pos)):]
	switch {
	case def.Varargs && !slices.Contains(def.Params, "varargs"):
		s.set("varargs", &py.Tuple{Items: extra})
	case len(extra) > 0:
		py.Raise(py.KindType, "macro '%s' takes not more than %d argument(s)", def.Name, len(def.Params))
	}
}
