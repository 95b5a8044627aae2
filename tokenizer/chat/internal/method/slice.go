package method

import (
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Slice returns v[start:stop:step]. None means a missing bound.
func (m *Machine) Slice(v, start, stop, step py.Value) py.Value {
	m.Check(v)
	if s, ok := py.Text(v); ok {
		_, markup := v.(py.Markup)
		m.Scan(4 * len(s))
		return py.Like(markup, newSpan(py.Runes(s), start, stop, step).text(m.Machine, s))
	}
	switch v := v.(type) {
	case *py.List:
		return m.NewList(newSpan(len(v.Items), start, stop, step).items(m.Machine, v.Items))
	case *py.Tuple:
		return &py.Tuple{Items: newSpan(len(v.Items), start, stop, step).items(m.Machine, v.Items)}
	case *py.Range:
		s := newSpan(v.Len(), start, stop, step)
		return &py.Range{Start: v.Start + int64(s.lo)*v.Step, Stop: v.Start + int64(s.hi)*v.Step, Step: v.Step * int64(s.by)}
	case *py.Dict:
		py.Raise(py.KindType, "unhashable type: 'slice'")
	}
	py.Raise(py.KindType, "'%s' object is not subscriptable", py.TypeName(v))
	return nil
}

// span is the indices from lo to hi, exclusive, in steps of by.
type span struct{ lo, hi, by int }

// newSpan resolves a slice of n items.
func newSpan(n int, start, stop, step py.Value) span {
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

// text returns the characters of text that s selects.
func (s span) text(m *py.Machine, text string) string {
	if s.by == 1 {
		if s.lo >= s.hi {
			return ""
		}
		begin := py.Offset(text, s.lo)
		return text[begin : begin+py.Offset(text[begin:], s.hi-s.lo)]
	}
	m.Grow(5 * len(text))
	all := []rune(text)
	var selected strings.Builder
	s.each(func(i int) { selected.WriteRune(all[i]) })
	return selected.String()
}

// items returns the items that s selects.
func (s span) items(m *py.Machine, items []py.Value) []py.Value {
	if s.by == 1 {
		return items[s.lo:max(s.lo, s.hi):max(s.lo, s.hi)]
	}
	var selected []py.Value
	s.each(func(i int) {
		m.Grow(16)
		selected = append(selected, items[i])
	})
	return selected
}
