package py

import (
	"cmp"
	"html"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Binary returns x op y, where op is one of + - * / // % **. It does not implement % of
// strings.
func (m *Machine) Binary(op string, x, y Value) Value {
	m.Check(x, y)
	if v, ok := arithmetic(op, x, y); ok {
		return v
	}
	switch op {
	case "+":
		if v, ok := m.concatenate(x, y); ok {
			return v
		}
	case "*":
		if v, ok := m.repeat(x, y); ok {
			return v
		}
		if v, ok := m.repeat(y, x); ok {
			return v
		}
	}
	if op == "**" {
		op = "** or pow()"
	}
	Raise(KindType, "unsupported operand type(s) for %s: '%s' and '%s'", op, TypeName(x), TypeName(y))
	return nil
}

// Escape implements Markup.escape(v).
func (m *Machine) Escape(v Value) string {
	s := m.Str(v)
	if _, safe := v.(Markup); safe {
		return s
	}
	m.Charge(6 * len(s))
	return html.EscapeString(s)
}

// MaybeMarkup returns s as a Markup if markup is set, else as a str.
func MaybeMarkup(markup bool, s string) Value {
	if markup {
		return Markup(s)
	}
	return s
}

// concatenate returns x + y of two strings, lists or tuples. If one string is Markup, it
// escapes the other. It returns false for other types of x.
func (m *Machine) concatenate(x, y Value) (Value, bool) {
	switch a := x.(type) {
	case string, Markup:
		_, xSafe := x.(Markup)
		_, ySafe := y.(Markup)
		markup := xSafe || ySafe
		if _, ok := Text(y); !ok {
			Raise(KindType, `can only concatenate str (not "%s") to str`, TypeName(y))
		}
		s, t := m.Str(x), m.Str(y)
		if markup {
			s, t = m.Escape(x), m.Escape(y)
		}
		m.Charge(len(s) + len(t))
		return MaybeMarkup(markup, s+t), true
	case *List:
		b, ok := y.(*List)
		if !ok {
			Raise(KindType, `can only concatenate list (not "%s") to list`, TypeName(y))
		}
		m.Charge(16 * (len(a.Items) + len(b.Items)))
		return &List{Items: slices.Concat(a.Items, b.Items)}, true
	case *Tuple:
		b, ok := y.(*Tuple)
		if !ok {
			Raise(KindType, `can only concatenate tuple (not "%s") to tuple`, TypeName(y))
		}
		m.Charge(16 * (len(a.Items) + len(b.Items)))
		return &Tuple{Items: slices.Concat(a.Items, b.Items)}, true
	}
	return nil, false
}

// repeat returns x * y, where x is a string, list or tuple and y an integer, or false for other types.
func (m *Machine) repeat(x, y Value) (Value, bool) {
	if _, ok := ToBig(y); !ok {
		return nil, false
	}
	n := 0
	if s, ok := Text(x); ok {
		_, markup := x.(Markup)
		n = max(0, WantInt(y))
		m.ChargeCopies(len(s), n)
		if s == "" {
			return x, true
		}
		return MaybeMarkup(markup, strings.Repeat(s, n)), true
	}
	var items []Value
	switch x := x.(type) {
	case *List:
		items = x.Items
	case *Tuple:
		items = x.Items
	default:
		return nil, false
	}
	n = max(0, WantInt(y))
	m.ChargeCopies(16*len(items), n)
	var all []Value
	if len(items) > 0 { // ChargeCopies does not limit n if items is empty
		for range n {
			all = append(all, items...)
		}
	}
	if _, ok := x.(*List); ok {
		return &List{Items: all}, true
	}
	return &Tuple{Items: all}, true
}

// Equal returns x == y.
func (m *Machine) Equal(x, y Value) bool {
	m.Step(1)
	if a, ok := Text(x); ok {
		b, ok := Text(y)
		m.Scan(min(len(a), len(b)))
		return ok && a == b
	}
	if IsNumber(x) && IsNumber(y) {
		return compareNumbers(x, y) == 0
	}
	switch a := x.(type) {
	case nil:
		return y == nil
	case *Undefined:
		_, ok := y.(*Undefined)
		return ok
	case *List:
		b, ok := y.(*List)
		return ok && m.equalItems(a.Items, b.Items)
	case *Tuple:
		b, ok := y.(*Tuple)
		return ok && m.equalItems(a.Items, b.Items)
	case *Dict:
		b, ok := y.(*Dict)
		return ok && m.equalDicts(a, b)
	case *Range:
		b, ok := y.(*Range)
		if !ok || a.Len() != b.Len() {
			return false
		}
		sameStart := a.Len() == 0 || a.Start == b.Start
		sameStep := a.Len() <= 1 || a.Step == b.Step
		return sameStart && sameStep
	case *View:
		b, ok := y.(*View)
		return ok && a.Type == b.Type && a.Type != "dict_values" && m.equalDicts(a.Dict, b.Dict)
	case *Func:
		return false
	}
	if _, ok := Text(y); ok || y == nil || IsNumber(y) {
		return false
	}
	return x == y
}

func (m *Machine) equalItems(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	m.Enter()
	defer m.Leave()
	for i := range a {
		if !m.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (m *Machine) equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	m.Enter()
	defer m.Leave()
	for i, key := range a.keys {
		other, ok := m.Get(b, key)
		if !ok || !m.Equal(a.values[i], other) {
			return false
		}
	}
	return true
}

// unordered is the result of comparing with NaN.
const unordered = 2

// compareNumbers returns -1, 0 or 1 as x is less than, equal to or greater than y, or
// unordered. Like Python, it compares an integer with a float exactly.
func compareNumbers(x, y Value) int {
	i, iok := ToBig(x)
	j, jok := ToBig(y)
	if iok && jok {
		return i.Cmp(j)
	}
	f, _ := ToFloat(x)
	g, _ := ToFloat(y)
	switch {
	case math.IsNaN(f) || math.IsNaN(g):
		return unordered
	// An integer beyond the largest float becomes infinite, but is nearer to 0 than infinity.
	case f == g && math.IsInf(f, 0):
		switch {
		case iok:
			return -cmp.Compare(g, 0)
		case jok:
			return cmp.Compare(f, 0)
		}
		return 0
	// ToFloat rounds integers of more than 53 bits, so equal floats need an exact comparison.
	case iok && f == g && i.BitLen() > 53:
		exact, _ := big.NewFloat(g).Int(nil)
		return i.Cmp(exact)
	case jok && f == g && j.BitLen() > 53:
		exact, _ := big.NewFloat(f).Int(nil)
		return exact.Cmp(j)
	}
	return cmp.Compare(f, g)
}

// Order returns x op y, where op is one of < <= > >=. It raises TypeError for types that
// have no order.
func (m *Machine) Order(op string, x, y Value) bool {
	m.Step(1)
	m.Check(x, y)
	fits := func(c int) bool { // c: -1, 0 or 1
		switch op {
		case "<":
			return c < 0
		case "<=":
			return c <= 0
		case ">":
			return c == 1
		}
		return c == 0 || c == 1
	}
	a, aok := Text(x)
	b, bok := Text(y)
	switch {
	case aok && bok:
		m.Scan(min(len(a), len(b)))
		return fits(strings.Compare(a, b))
	case IsNumber(x) && IsNumber(y):
		c := compareNumbers(x, y)
		return c != unordered && fits(c)
	}
	var p, q []Value
	lists := false
	switch v := x.(type) {
	case *List:
		if w, ok := y.(*List); ok {
			p, q, lists = v.Items, w.Items, true
		}
	case *Tuple:
		if w, ok := y.(*Tuple); ok {
			p, q, lists = v.Items, w.Items, true
		}
	}
	if !lists {
		Raise(KindType, "'%s' not supported between instances of '%s' and '%s'", op, TypeName(x), TypeName(y))
	}
	m.Enter()
	defer m.Leave()
	for i := range min(len(p), len(q)) {
		if !m.Equal(p[i], q[i]) {
			return m.Order(op, p[i], q[i])
		}
	}
	return fits(cmp.Compare(len(p), len(q)))
}

// Compare returns -1, 0 or 1, for sorting. It raises TypeError for types that have no order.
func (m *Machine) Compare(x, y Value) int {
	switch {
	case m.Order("<", x, y):
		return -1
	case m.Order("<", y, x):
		return 1
	}
	return 0
}

// Contains returns "item in v".
func (m *Machine) Contains(v, item Value) bool {
	if s, ok := Text(v); ok {
		part, ok := Text(item)
		if !ok {
			Raise(KindType, "'in <string>' requires string as left operand, not %s", TypeName(item))
		}
		m.Scan(len(s))
		return strings.Contains(s, part)
	}
	switch c := v.(type) {
	case *Dict:
		_, ok := m.Get(c, item)
		return ok
	case *View:
		if c.Type == "dict_keys" {
			_, ok := m.Get(c.Dict, item)
			return ok
		}
	}
	next, ok := m.Walk(v)
	if !ok {
		Raise(KindType, "argument of type '%s' is not iterable", TypeName(v))
	}
	for x, ok := next(); ok; x, ok = next() {
		if m.Equal(x, item) {
			return true
		}
	}
	return false
}
