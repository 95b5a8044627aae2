package filter

import (
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/method"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// getter returns a function that gets an attribute of items: a path with dots, an index,
// or nil for the item. If otherwise is not nil, it replaces an undefined step.
func getter(m *method.Machine, attribute, otherwise py.Value, ignoreCase bool) func(py.Value) py.Value {
	var path []py.Value
	switch a, ok := py.Text(attribute); {
	case ok:
		for _, part := range strings.Split(a, ".") {
			if n, ok := py.Int(part, 10); ok && strings.Trim(part, "0123456789") == "" {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	case attribute != nil:
		path = []py.Value{attribute}
	}
	return func(v py.Value) py.Value {
		for _, part := range path {
			v = m.Item(v, part)
			if _, undefined := v.(*py.Undefined); undefined && otherwise != nil {
				v = otherwise
			}
		}
		if s, ok := py.Text(v); ok && ignoreCase {
			return m.Lower(s)
		}
		return v
	}
}
