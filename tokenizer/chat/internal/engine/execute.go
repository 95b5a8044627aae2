package engine

import (
	"strings"
	"time"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/syntax"
)

// signal says how a body ended.
type signal int

const (
	done      signal = iota // at its end
	broke                   // at a break
	continued               // at a continue
)

// executor runs a template once: statements, expressions, filters, tests and methods.
type executor struct {
	*py.Machine
	now  time.Time        // time that strftime_now formats
	line int              // line of the running statement or expression, for errors
	out  *strings.Builder // output: the template's, or that of the block that capture runs
	root *scope           // variables that the caller of Render passed
}

func (e *executor) write(s string) {
	e.Charge(len(s))
	e.out.WriteString(s)
}

// capture returns the output of f. If f raises, e.out stays replaced. That is harmless, because only Render
// catches, and then it returns no text.
func (e *executor) capture(f func()) string {
	out := e.out
	e.out = &strings.Builder{}
	f()
	text := e.out.String()
	e.out = out
	return text
}

// body runs statements in scope s, up to a break or continue.
func (e *executor) body(body []syntax.Stmt, s *scope) signal {
	e.Enter()
	defer e.Leave()
	for _, stmt := range body {
		e.Step(1)
		if sig := e.statement(stmt, s); sig != done {
			return sig
		}
	}
	return done
}

// statement runs a statement. It returns the signal of a break or continue in it.
func (e *executor) statement(stmt syntax.Stmt, s *scope) signal {
	switch n := stmt.(type) {
	case *syntax.Text:
		e.write(n.Data)
	case *syntax.Print:
		e.line = n.Line
		e.write(e.Str(e.eval(n.X, s)))
	case *syntax.If:
		for i, test := range n.Tests {
			if py.Truth(e.eval(test, s)) {
				return e.body(n.Bodies[i], s)
			}
		}
		return e.body(n.Else, s)
	case *syntax.For:
		e.line = n.Line
		e.forLoop(n, e.eval(n.Iter, s), s, 0)
	case *syntax.Set:
		e.line = n.Line
		e.assign(n.Target, e.eval(n.X, s), s)
	case *syntax.SetBlock:
		e.line = n.Line
		var sig signal
		var v py.Value = e.capture(func() { sig = e.body(n.Body, inside(s, n.Hidden)) })
		if sig != done {
			return sig
		}
		if n.Filter != nil {
			v = e.filtered(n.Filter, v, s)
		}
		e.assign(n.Target, v, s)
	case *syntax.Macro:
		s.set(n.Name, &macro{e: e, def: n, scope: s})
	case *syntax.CallBlock:
		e.callBlock(n, s)
	case *syntax.FilterBlock:
		var sig signal
		text := e.capture(func() { sig = e.body(n.Body, inside(s, n.Hidden)) })
		if sig != done {
			return sig
		}
		e.write(e.Str(e.filtered(n.Filter, text, s)))
	case *syntax.Scope:
		return e.scoped(n, s)
	case *syntax.Break:
		if n.Continue {
			return continued
		}
		return broke
	}
	return done
}

// scoped runs a scope statement, such as with. With n.Root set, the body sees the
// template's top level but no variables of enclosing loops and blocks.
func (e *executor) scoped(n *syntax.Scope, s *scope) signal {
	inner := &scope{parent: s}
	if n.Root {
		for inner.parent.parent != nil && inner.parent.parent != e.root {
			inner.parent = inner.parent.parent
		}
	}
	inner.hide(n.Hidden)
	for i, target := range n.Targets {
		e.assign(target, e.eval(n.Values[i], s), inner)
	}
	return e.body(n.Body, inner)
}

// callBlock calls a macro with the block as the macro "caller".
func (e *executor) callBlock(n *syntax.CallBlock, s *scope) {
	e.line = n.Call.Line
	args := e.args(n.Call.Args, s)
	args.Named = append(args.Named, py.Named{Name: "caller", Value: &macro{e: e, def: n.Macro, scope: s}})
	e.write(e.Str(e.call(e.eval(n.Call.Func, s), args)))
}

// forLoop runs a loop over v. depth is the number of enclosing calls of the same recursive
// loop.
func (e *executor) forLoop(n *syntax.For, v py.Value, s *scope, depth int) {
	e.Enter()
	defer e.Leave()
	l := &loop{m: e.Machine, depth: depth, items: e.Iterate(v), index: -1}
	if n.Filter != nil {
		l.items = e.passing(n, l.items, s)
	} else if _, lazy := v.(*py.Iter); !lazy {
		l.size, l.known = e.Len(v), true
	}
	if n.Recursive {
		l.recurse = func(v py.Value) py.Value {
			return e.capture(func() { e.forLoop(n, v, s, depth+1) })
		}
	}
	ran := false
	for item, ok := l.next(); ok; item, ok = l.next() {
		ran = true
		e.Step(3) // for the scope, the loop variable and the target
		inner := &scope{parent: s, names: make([]string, 0, 4), values: make([]py.Value, 0, 4)}
		inner.set("loop", l)
		inner.hide(n.Hidden)
		e.assign(n.Target, item, inner)
		if e.body(n.Body, inner) == broke {
			break
		}
	}
	if !ran {
		e.body(n.Else, inside(s, n.ElseHidden))
	}
}

// passing returns the iteration over the items that pass a loop's test.
func (e *executor) passing(n *syntax.For, items func() (py.Value, bool), s *scope) func() (py.Value, bool) {
	return func() (py.Value, bool) {
		for item, ok := items(); ok; item, ok = items() {
			inner := &scope{parent: s}
			e.assign(n.Target, item, inner)
			if py.Truth(e.eval(n.Filter, inner)) {
				return item, true
			}
		}
		return nil, false
	}
}
