package syntax

import (
	"maps"
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Names in Jinja's bodies (jinja2.idtracking). A name that a body assigns is a local variable
// of the body from its beginning: it is undefined until the assignment, even if the
// template's input has a variable of that name. The exception is a name that the body or an
// enclosing body reads or assigns before: then it keeps the outer value until the
// assignment. The bodies of an if belong to the enclosing body; other blocks have bodies of
// their own.

// names collects the names of a body, in the order of its statements.
type names struct {
	parent *names          // names of the enclosing body; nil for the template
	hidden map[string]bool // true if the name is undefined until it is assigned; false if read or passed in
	stored map[string]bool // names that the body assigns
}

// newNames returns the names of a body with parameters, before its first statement.
func newNames(parent *names, params ...string) *names {
	n := &names{parent: parent, hidden: map[string]bool{}, stored: map[string]bool{}}
	for _, p := range params {
		n.param(p)
	}
	return n
}

// has reports whether the body or an enclosing one has seen a name.
func (n *names) has(name string) bool {
	for ; n != nil; n = n.parent {
		if _, ok := n.hidden[name]; ok {
			return true
		}
	}
	return false
}

// param adds a name that has a value when the body begins.
func (n *names) param(name string) {
	n.hidden[name] = false
	n.stored[name] = true
}

// load adds a name that a statement reads.
func (n *names) load(name string) {
	if !n.has(name) {
		n.hidden[name] = false
	}
}

// store adds a name that a statement assigns.
func (n *names) store(name string) {
	n.stored[name] = true
	if _, ok := n.hidden[name]; !ok {
		n.hidden[name] = !n.parent.has(name)
	}
}

// branches calls each visit with a copy of n, for a branch that may not run, and then merges
// the copies into n. A name that a branch assigns for the first time is not hidden: if the
// branch does not run, the name keeps its outer value.
func (n *names) branches(visits ...func(*names)) {
	var branches []*names
	for _, visit := range visits {
		b := &names{parent: n.parent, hidden: maps.Clone(n.hidden), stored: maps.Clone(n.stored)}
		visit(b)
		branches = append(branches, b)
	}
	before := maps.Clone(n.stored)
	for _, b := range branches {
		maps.Copy(n.hidden, b.hidden)
		maps.Copy(n.stored, b.stored)
	}
	for name := range n.stored {
		if !before[name] {
			n.hidden[name] = false
		}
	}
}

// frame returns a body's hidden names, and sets those of the bodies in it. It visits inner
// bodies last, because they see all names of this body.
func (n *names) frame(body []Stmt) []*py.Undefined {
	n.statements(body)
	for _, stmt := range body {
		n.inner(stmt)
	}
	var hidden []*py.Undefined
	for name, isHidden := range n.hidden {
		if isHidden {
			hidden = append(hidden, &py.Undefined{Name: name})
		}
	}
	return hidden
}

// statements visits the names of a body's statements, without those of inner bodies.
func (n *names) statements(body []Stmt) {
	for _, stmt := range body {
		switch s := stmt.(type) {
		case *Print:
			n.read(s.X)
		case *Set:
			n.read(s.X)
			n.assign(s.Target)
		case *SetBlock:
			n.assign(s.Target)
		case *For:
			n.read(s.Iter)
		case *Macro:
			n.store(s.Name)
		case *CallBlock:
			n.read(s.Call)
		case *FilterBlock:
			n.read(s.Filter)
		case *Scope:
			n.read(s.Values...)
		case *If:
			n.conditional(s)
		}
	}
}

// conditional visits the tests and bodies of an if.
func (n *names) conditional(s *If) {
	n.read(s.Tests[0])
	n.branches(
		func(b *names) { b.statements(s.Bodies[0]) },
		func(b *names) {
			for i := 1; i < len(s.Tests); i++ {
				b.read(s.Tests[i])
				b.branches(func(c *names) { c.statements(s.Bodies[i]) })
			}
		},
		func(b *names) { b.statements(s.Else) },
	)
}

// inner sets the hidden names of a statement's bodies that have a frame of their own.
func (n *names) inner(stmt Stmt) {
	switch s := stmt.(type) {
	case *If:
		for _, stmt := range slices.Concat(slices.Concat(s.Bodies...), s.Else) {
			n.inner(stmt)
		}
	case *For:
		own := newNames(n, "loop")
		own.params(s.Target)
		s.Hidden = own.frame(s.Body)
		s.ElseHidden = newNames(n).frame(s.Else)
	case *SetBlock:
		s.Hidden = newNames(n).frame(s.Body)
	case *FilterBlock:
		s.Hidden = newNames(n).frame(s.Body)
	case *Macro:
		n.macro(s)
	case *CallBlock:
		n.macro(s.Macro)
	case *Scope:
		own := newNames(n)
		if s.Root {
			own.parent = nil
		}
		for _, target := range s.Targets {
			own.params(target)
		}
		s.Hidden = own.frame(s.Body)
	}
}

// macro sets the hidden names of a macro's body.
func (n *names) macro(m *Macro) {
	own := newNames(n, m.Params...)
	own.read(m.Defaults...)
	for name, used := range map[string]bool{"caller": m.Caller, "varargs": m.Varargs, "kwargs": m.Kwargs} {
		if used {
			own.param(name)
		}
	}
	m.Hidden = own.frame(m.Body)
}

// params makes the names of a target parameters.
func (n *names) params(target Expr) {
	switch t := target.(type) {
	case *Name:
		n.param(t.Name)
	case *Tuple:
		for _, item := range t.Items {
			n.params(item)
		}
	}
}

// assign visits the names of a target. An attribute's namespace is read, not assigned.
func (n *names) assign(target Expr) {
	switch t := target.(type) {
	case *Name:
		n.store(t.Name)
	case *Attribute:
		n.load(t.Name)
	case *Tuple:
		for _, item := range t.Items {
			n.assign(item)
		}
	}
}

// read visits the names that expressions read.
func (n *names) read(exprs ...Expr) {
	for _, x := range exprs {
		switch x := x.(type) {
		case *Name:
			n.load(x.Name)
		case *Tuple:
			n.read(x.Items...)
		case *List:
			n.read(x.Items...)
		case *Dict:
			n.read(x.Keys...)
			n.read(x.Values...)
		case *Cond:
			n.read(x.Test, x.Then, x.Else)
		case *Logic:
			n.read(x.X, x.Y)
		case *Not:
			n.read(x.X)
		case *Compare:
			n.read(x.X)
			n.read(x.Ys...)
		case *Binary:
			n.read(x.X, x.Y)
		case *Concat:
			n.read(x.Parts...)
		case *Unary:
			n.read(x.X)
		case *GetAttr:
			n.read(x.X)
		case *GetItem:
			n.read(x.X, x.Key)
		case *Slice:
			n.read(x.Start, x.Stop, x.Step)
		case *Call:
			n.read(x.Func)
			n.args(x.Args)
		case *Filter:
			n.read(x.X)
			n.args(x.Args)
		case *Test:
			n.read(x.X)
			n.args(x.Args)
		}
	}
}

func (n *names) args(a Args) {
	n.read(a.Pos...)
	n.read(a.Named...)
	n.read(a.Star, a.Double)
}
