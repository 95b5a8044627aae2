package engine

import (
	"strings"
	"unicode/utf8"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// undefinedOf returns the undefined value for a missing name of v.
func undefinedOf(v, name py.Value) py.Value {
	return &py.Undefined{Object: v, HasObject: true, Name: name}
}

// subscript returns v[key] by Jinja's rules: the item, else the attribute, else undefined.
func (e *executor) subscript(v, key py.Value) py.Value {
	e.Check(v)
	if item, ok := e.indexed(v, key); ok {
		return item
	}
	if name, ok := py.Text(key); ok {
		if attr, ok := e.attr(v, name); ok {
			return attr
		}
	}
	return undefinedOf(v, key)
}

// attribute returns v.name by Jinja's rules: the attribute, else the item, else undefined.
func (e *executor) attribute(v py.Value, name string) py.Value {
	e.Check(v)
	if attr, ok := e.attr(v, name); ok {
		return attr
	}
	if item, ok := e.indexed(v, name); ok {
		return item
	}
	return undefinedOf(v, name)
}

// ownAttr returns v.name and ignores items.
func (e *executor) ownAttr(v py.Value, name string) py.Value {
	e.Check(v)
	if attr, ok := e.attr(v, name); ok {
		return attr
	}
	return undefinedOf(v, name)
}

// indexed returns v[key]. ok is false if Python would raise LookupError or TypeError.
func (e *executor) indexed(v, key py.Value) (item py.Value, ok bool) {
	if d, isDict := v.(*py.Dict); isDict {
		switch key.(type) {
		case *py.List, *py.Dict, *py.View:
			return nil, false
		}
		return e.Get(d, key)
	}
	n, isInt := py.ToBig(key)
	if !isInt || !n.IsInt64() {
		return nil, false
	}
	i := int(n.Int64())
	if s, isText := py.Text(v); isText {
		_, markup := v.(py.Markup)
		c, ok := e.runeAt(s, i)
		return py.MaybeMarkup(markup, c), ok
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
func (e *executor) runeAt(s string, i int) (string, bool) {
	if i >= len(s) || -i > len(s) {
		return "", false
	}
	e.Scan(8 * max(i, -i)) // decoding a character takes longer than scanning a byte
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

// slice returns v[start:stop:step]. None means a missing bound.
func (e *executor) slice(v, start, stop, step py.Value) py.Value {
	e.Check(v)
	if s, ok := py.Text(v); ok {
		_, markup := v.(py.Markup)
		e.Scan(4 * len(s))
		return py.MaybeMarkup(markup, e.spanText(newSpan(py.Runes(s), start, stop, step), s))
	}
	switch v := v.(type) {
	case *py.List:
		return e.NewList(e.spanItems(newSpan(len(v.Items), start, stop, step), v.Items))
	case *py.Tuple:
		return &py.Tuple{Items: e.spanItems(newSpan(len(v.Items), start, stop, step), v.Items)}
	case *py.Range:
		s := newSpan(v.Len(), start, stop, step)
		return &py.Range{Start: v.Start + int64(s.lo)*v.Step, Stop: v.Start + int64(s.hi)*v.Step,
			Step: v.Step * int64(s.by)}
	case *py.Dict:
		py.Raise(py.KindType, "unhashable type: 'slice'")
	}
	py.Raise(py.KindType, "'%s' object is not subscriptable", py.TypeName(v))
	return nil
}

// bound resolves a bound of a slice of n items. A nil v is missing and gives otherwise. A bound before the first item
// gives -1, and one beyond the end n + 1.
func bound(n int, v py.Value, otherwise int) int {
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

// span is the indices from lo to hi, exclusive, in steps of by.
type span struct{ lo, hi, by int }

// newSpan resolves the bounds of a slice of n items, as slice.indices does in Python. A nil bound is
// missing. lo and hi stay within the items, except that hi may be -1 for a negative step. The span is empty
// if hi does not lie beyond lo in the direction of the step.
func newSpan(n int, start, stop, step py.Value) span {
	index := func(v py.Value, otherwise int) int { return bound(n, v, otherwise) }
	by := 1
	if step != nil {
		by = py.WantInt(step)
	}
	if by == 0 {
		py.Raise(py.KindValue, "slice step cannot be zero")
	}
	if by > 0 {
		return span{lo: min(max(index(start, 0), 0), n), hi: min(max(index(stop, n), 0), n), by: by}
	}
	return span{lo: min(index(start, n-1), n-1), hi: max(min(index(stop, -1), n-1), -1), by: max(by, -n-1)}
}

// each calls visit with the indices in order.
func (s span) each(visit func(i int)) {
	for i := s.lo; s.by > 0 && i < s.hi || s.by < 0 && i > s.hi; i += s.by {
		visit(i)
	}
}

// spanText returns the characters of text that s selects.
func (e *executor) spanText(s span, text string) string {
	if s.by == 1 {
		if s.lo >= s.hi {
			return ""
		}
		begin := py.Offset(text, s.lo)
		return text[begin : begin+py.Offset(text[begin:], s.hi-s.lo)]
	}
	e.Charge(5 * len(text))
	all := []rune(text)
	var selected strings.Builder
	s.each(func(i int) { selected.WriteRune(all[i]) })
	return selected.String()
}

// spanItems returns the items that s selects.
func (e *executor) spanItems(s span, items []py.Value) []py.Value {
	if s.by == 1 {
		return items[s.lo:max(s.lo, s.hi):max(s.lo, s.hi)]
	}
	var selected []py.Value
	s.each(func(i int) {
		e.Charge(16)
		selected = append(selected, items[i])
	})
	return selected
}
