package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// lookup returns the value of a name: a variable of s or of an enclosing scope, else a
// global, else an undefined value.
func (e *executor) lookup(name string, s *scope) py.Value {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.values[i]
		}
	}
	if v := e.global(name); v != nil {
		return v
	}
	return &py.Undefined{Name: name}
}

// eval returns the value of an expression in scope s.
func (e *executor) eval(x syntax.Expr, s *scope) py.Value {
	e.Step(1)
	e.Enter()
	defer e.Leave()
	switch n := x.(type) {
	case *syntax.Const:
		return n.Value
	case *syntax.Name:
		e.line = n.Line
		return e.lookup(n.Name, s)
	case *syntax.GetAttr:
		v := e.eval(n.X, s)
		e.line = n.Line
		return e.attribute(v, n.Name)
	case *syntax.GetItem:
		return e.getItem(n, s)
	case *syntax.Filter:
		return e.filtered(n, nil, s)
	case *syntax.Test:
		v := e.eval(n.X, s)
		args := e.args(n.Args, s)
		e.line = n.Line
		return e.holds(n.Name, v, args)
	case *syntax.Call:
		f := e.eval(n.Func, s)
		args := e.args(n.Args, s)
		e.line = n.Line
		return e.call(f, args)
	case *syntax.Cond:
		switch {
		case py.Truth(e.eval(n.Test, s)):
			return e.eval(n.Then, s)
		case n.Else != nil:
			return e.eval(n.Else, s)
		}
		return &py.Undefined{Hint: fmt.Sprintf(
			"the inline if-expression on line %d evaluated to false and no else section was defined.", n.Line)}
	case *syntax.Tuple:
		return &py.Tuple{Items: e.all(n.Items, s)}
	case *syntax.List:
		return e.NewList(e.all(n.Items, s))
	case *syntax.Dict:
		d := py.NewDict()
		for i, key := range n.Keys {
			k := e.eval(key, s)
			e.Set(d, k, e.eval(n.Values[i], s))
		}
		return d
	}
	return e.operation(x, s)
}

// operation returns the value of an expression with an operator.
func (e *executor) operation(x syntax.Expr, s *scope) py.Value {
	switch n := x.(type) {
	case *syntax.Logic:
		v := e.eval(n.X, s)
		if py.Truth(v) == n.Or { // the left operand decides
			return v
		}
		return e.eval(n.Y, s)
	case *syntax.Not:
		return !py.Truth(e.eval(n.X, s))
	case *syntax.Compare:
		return e.compare(n, s)
	case *syntax.Binary:
		a, b := e.eval(n.X, s), e.eval(n.Y, s)
		e.line = n.Line
		return e.binary(n.Op, a, b)
	case *syntax.Unary:
		v := e.eval(n.X, s)
		e.line = n.Line
		e.Check(v)
		if n.Minus {
			return py.Negate(v)
		}
		return py.Plus(v)
	case *syntax.Concat:
		var b strings.Builder
		for _, part := range n.Parts {
			text := e.Str(e.eval(part, s))
			e.Charge(len(text))
			b.WriteString(text)
		}
		return b.String()
	}
	py.Raise(py.KindSyntax, "slice outside a subscript")
	return nil
}

// all returns the values of expressions.
func (e *executor) all(exprs []syntax.Expr, s *scope) []py.Value {
	e.Charge(16 * len(exprs))
	items := make([]py.Value, len(exprs))
	for i, x := range exprs {
		items[i] = e.eval(x, s)
	}
	return items
}

// compare evaluates a chain of comparisons, such as a < b < c, up to the first false one.
func (e *executor) compare(n *syntax.Compare, s *scope) py.Value {
	x := e.eval(n.X, s)
	for i, op := range n.Ops {
		y := e.eval(n.Ys[i], s)
		e.line = n.Line
		var ok bool
		switch op {
		case "==":
			ok = e.Equal(x, y)
		case "!=":
			ok = !e.Equal(x, y)
		case "in":
			ok = e.Contains(y, x)
		case "notin":
			ok = !e.Contains(y, x)
		default:
			ok = e.Order(op, x, y)
		}
		if !ok {
			return false
		}
		x = y
	}
	return true
}

// getItem returns the value of a subscript or of a slice.
func (e *executor) getItem(n *syntax.GetItem, s *scope) py.Value {
	v := e.eval(n.X, s)
	sl, ok := n.Key.(*syntax.Slice)
	if !ok {
		key := e.eval(n.Key, s)
		e.line = n.Line
		return e.subscript(v, key)
	}
	var bound [3]py.Value
	for i, x := range []syntax.Expr{sl.Start, sl.Stop, sl.Step} {
		if x != nil {
			bound[i] = e.eval(x, s)
		}
	}
	e.line = n.Line
	return e.slice(v, bound[0], bound[1], bound[2])
}

// filtered applies a chain of filters. In a filter block or a filtered set block, the first
// filter of the chain has no operand (X is nil): its input is block, the text of the block.
func (e *executor) filtered(x syntax.Expr, block py.Value, s *scope) py.Value {
	n, ok := x.(*syntax.Filter)
	if !ok {
		return e.eval(x, s)
	}
	e.Enter()
	defer e.Leave()
	v := block
	if n.X != nil {
		v = e.filtered(n.X, block, s)
	}
	args := e.args(n.Args, s)
	e.line = n.Line
	return e.apply(n.Name, v, args)
}

// args returns the values of a call's arguments.
func (e *executor) args(a syntax.Args, s *scope) (args py.Args) {
	if len(a.Pos) > 0 {
		args.Pos = e.all(a.Pos, s)
	}
	for i, x := range a.Named {
		args.Named = append(args.Named, py.Named{Name: a.Names[i], Value: e.eval(x, s)})
	}
	if a.Star != nil {
		args.Pos = append(args.Pos, e.Items(e.eval(a.Star, s))...)
	}
	if a.Double != nil {
		d, ok := e.eval(a.Double, s).(*py.Dict)
		if !ok {
			py.Raise(py.KindType, "argument after ** must be a mapping")
		}
		for i := range d.Len() {
			key, v := d.At(i)
			name, ok := py.Text(key)
			if !ok {
				py.Raise(py.KindType, "keywords must be strings")
			}
			e.Charge(40)
			if slices.Contains(a.Names, name) {
				py.Raise(py.KindType, "got multiple values for keyword argument '%s'", name)
			}
			args.Named = append(args.Named, py.Named{Name: name, Value: v})
		}
	}
	return args
}

// call returns f(args).
func (e *executor) call(f py.Value, args py.Args) py.Value {
	e.Check(f)
	switch f := f.(type) {
	case *py.Func:
		return f.Call(args)
	case interface{ Call(py.Args) py.Value }:
		return f.Call(args)
	}
	py.Raise(py.KindType, "'%s' object is not callable", py.TypeName(f))
	return nil
}

// binary returns x op y. Unlike py.Machine's Binary, it formats strings with %.
func (e *executor) binary(op string, x, y py.Value) py.Value {
	if format, ok := py.Text(x); ok && op == "%" {
		_, markup := x.(py.Markup)
		return py.MaybeMarkup(markup, e.percent(format, y, markup))
	}
	return e.Machine.Binary(op, x, y)
}
