package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/easyrl/easyrl/internal/lossy"
	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// listOf returns a list of the values of items, or None if there are none. what names an item
// for errors.
func listOf[T any](m *py.Machine, what string, items []T, value func(*py.Machine, T) (py.Value, error)) (
	py.Value, error) {
	if len(items) == 0 {
		return nil, nil
	}
	values := make([]py.Value, len(items))
	for i, item := range items {
		v, err := value(m, item)
		if err != nil {
			return nil, fmt.Errorf("chat %s %d: %w", what, i, err)
		}
		values[i] = v
	}
	return m.NewList(values), nil
}

// messageValue returns the dict of a message.
func messageValue(m *py.Machine, message Message) (py.Value, error) {
	if message.Raw != nil {
		return rawValue(m, message.Raw)
	}
	d := py.NewDict()
	m.Set(d, "role", clean(message.Role))
	m.Set(d, "content", clean(message.Content))
	return d, nil
}

// rawValue returns the value of a JSON object.
func rawValue(m *py.Machine, raw json.RawMessage) (py.Value, error) {
	v, err := m.DecodeJSON(raw)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*py.Dict); !ok {
		return nil, fmt.Errorf("JSON %s, expected an object", py.TypeName(v))
	}
	return v, nil
}

// clean replaces bytes that are not UTF-8: package py expects valid strings.
func clean(s string) string { return lossy.String(s) }

// valueOf converts a Go value. Keys of maps are in ascending order.
func valueOf(m *py.Machine, v any) (py.Value, error) {
	m.Enter()
	defer m.Leave()
	switch v := v.(type) {
	case nil, bool, float64, int64:
		return v, nil
	case int:
		return int64(v), nil
	case string:
		return clean(v), nil
	case json.RawMessage:
		return m.DecodeJSON(v)
	case []any:
		items := make([]py.Value, len(v))
		for i, item := range v {
			value, err := valueOf(m, item)
			if err != nil {
				return nil, err
			}
			items[i] = value
		}
		return m.NewList(items), nil
	case map[string]any:
		d := py.NewDict()
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, err := valueOf(m, v[key])
			if err != nil {
				return nil, err
			}
			m.Set(d, clean(key), value)
		}
		return d, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return m.DecodeJSON(data)
}
