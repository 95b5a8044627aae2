package method

import (
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/str"
)

// undefinedOf is what v has no name for.
func undefinedOf(v, name py.Value) py.Value { return &py.Undefined{Object: v, Of: true, Name: name} }

// Item is v[key] as Jinja has it: the item, else the attribute, else undefined.
func (m *Machine) Item(v, key py.Value) py.Value {
	m.Check(v)
	if item, ok := m.item(v, key); ok {
		return item
	}
	if name, ok := py.Text(key); ok {
		if attr, ok := m.attr(v, name); ok {
			return attr
		}
	}
	return undefinedOf(v, key)
}

// Attr is v.name as Jinja has it: the attribute, else the item, else undefined.
func (m *Machine) Attr(v py.Value, name string) py.Value {
	m.Check(v)
	if attr, ok := m.attr(v, name); ok {
		return attr
	}
	if item, ok := m.item(v, name); ok {
		return item
	}
	return undefinedOf(v, name)
}

// OwnAttr is v.name without the item of that name.
func (m *Machine) OwnAttr(v py.Value, name string) py.Value {
	m.Check(v)
	if attr, ok := m.attr(v, name); ok {
		return attr
	}
	return undefinedOf(v, name)
}

// item is v[key]; ok is false where Python raises LookupError or TypeError.
func (m *Machine) item(v, key py.Value) (item py.Value, ok bool) {
	if d, isDict := v.(*py.Dict); isDict {
		switch key.(type) {
		case *py.List, *py.Dict, *py.View:
			return nil, false
		}
		return m.Get(d, key)
	}
	n, isInt := py.ToBig(key)
	if !isInt || !n.IsInt64() {
		return nil, false
	}
	i := int(n.Int64())
	if s, isText := py.Text(v); isText {
		_, markup := v.(py.Markup)
		c, ok := m.runeAt(s, i)
		return py.Like(markup, c), ok
	}
	size, at := 0, func(int) py.Value { return nil }
	switch v := v.(type) {
	case *py.List:
		size, at = len(v.Items), func(i int) py.Value { return v.Items[i] }
	case *py.Tuple:
		size, at = len(v.Items), func(i int) py.Value { return v.Items[i] }
	case *py.Range:
		size, at = v.Len(), func(i int) py.Value { return v.Start + int64(i)*v.Step }
	}
	if i < 0 {
		i += size
	}
	if i < 0 || i >= size {
		return nil, false
	}
	return at(i), true
}

// runeAt is s[i] by characters, counted from the end if i is negative.
func (m *Machine) runeAt(s string, i int) (string, bool) {
	if i >= len(s) || -i > len(s) {
		return "", false
	}
	m.Scan(8 * max(i, -i))
	for ; i > 0 && s != ""; i-- {
		s = s[py.RuneLen(s):]
	}
	if i == 0 {
		if s == "" {
			return "", false
		}
		return s[:py.RuneLen(s)], true
	}
	for ; i < -1 && s != ""; i++ {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	_, n := utf8.DecodeLastRuneInString(s)
	return s[len(s)-n:], s != ""
}

// bounds resolves a slice of n items: the first index, the end and the step.
func (m *Machine) bounds(n int, start, stop, step py.Value) (lo, hi, by int) {
	index := func(v py.Value, otherwise int) int {
		if v == nil {
			return otherwise
		}
		big, ok := py.ToBig(v)
		if !ok {
			py.Raise(py.KindType, "slice indices must be integers or None or have an __index__ method")
		}
		i := n + 1
		switch {
		case big.IsInt64() && big.Int64() >= -int64(n)-1 && big.Int64() <= int64(n):
			i = int(big.Int64())
		case big.Sign() < 0:
			i = -n - 1
		}
		if i < 0 {
			i += n
		}
		return i
	}
	by = 1
	if step != nil {
		by = py.WantInt(step)
	}
	if by == 0 {
		py.Raise(py.KindValue, "slice step cannot be zero")
	}
	if by > 0 {
		return min(max(index(start, 0), 0), n), min(max(index(stop, n), 0), n), by
	}
	return min(index(start, n-1), n-1), max(min(index(stop, -1), n-1), -1), max(by, -n-1)
}

// Slice is v[start:stop:step]; None stands for a bound that is not given.
func (m *Machine) Slice(v, start, stop, step py.Value) py.Value {
	m.Check(v)
	if s, ok := py.Text(v); ok {
		_, markup := v.(py.Markup)
		m.Scan(4 * len(s))
		lo, hi, by := m.bounds(py.Runes(s), start, stop, step)
		return py.Like(markup, m.cut(s, lo, hi, by))
	}
	switch v := v.(type) {
	case *py.List:
		return m.NewList(m.pick(v.Items, start, stop, step))
	case *py.Tuple:
		return &py.Tuple{Items: m.pick(v.Items, start, stop, step)}
	case *py.Range:
		lo, hi, by := m.bounds(v.Len(), start, stop, step)
		return &py.Range{Start: v.Start + int64(lo)*v.Step, Stop: v.Start + int64(hi)*v.Step, Step: v.Step * int64(by)}
	case *py.Dict:
		py.Raise(py.KindType, "unhashable type: 'slice'")
	}
	py.Raise(py.KindType, "'%s' object is not subscriptable", py.TypeName(v))
	return nil
}

func (m *Machine) cut(s string, lo, hi, by int) string {
	if by == 1 {
		if lo >= hi {
			return ""
		}
		begin := str.Offset(s, lo)
		return s[begin : begin+str.Offset(s[begin:], hi-lo)]
	}
	m.Grow(5 * len(s))
	all := []rune(s)
	var b strings.Builder
	for i := lo; by > 0 && i < hi || by < 0 && i > hi; i += by {
		b.WriteRune(all[i])
	}
	return b.String()
}

func (m *Machine) pick(items []py.Value, start, stop, step py.Value) []py.Value {
	lo, hi, by := m.bounds(len(items), start, stop, step)
	if by == 1 {
		return items[lo:max(lo, hi):max(lo, hi)]
	}
	var picked []py.Value
	for i := lo; by > 0 && i < hi || by < 0 && i > hi; i += by {
		m.Grow(16)
		picked = append(picked, items[i])
	}
	return picked
}
