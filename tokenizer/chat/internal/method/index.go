package method

import (
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// undefinedOf returns the undefined value for a missing name of v.
func undefinedOf(v, name py.Value) py.Value { return &py.Undefined{Object: v, Of: true, Name: name} }

// Item returns v[key] by Jinja's rules: the item, else the attribute, else undefined.
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

// Attr returns v.name by Jinja's rules: the attribute, else the item, else undefined.
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

// OwnAttr returns v.name and ignores items.
func (m *Machine) OwnAttr(v py.Value, name string) py.Value {
	m.Check(v)
	if attr, ok := m.attr(v, name); ok {
		return attr
	}
	return undefinedOf(v, name)
}

// item returns v[key]. ok is false if Python raises LookupError or TypeError.
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

// runeAt returns character i of s, counted from the end if i is negative.
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
