package py

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Decode reads one JSON value, as Python's json.loads: objects keep the order of
// their keys, whole numbers are integers.
func (m *Machine) Decode(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := m.decode(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("json: more than one value, expected one")
	}
	return v, nil
}

func (m *Machine) decode(d *json.Decoder) (Value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	m.Enter()
	defer m.Leave()
	m.Step(1)
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return m.decodeList(d)
		}
		return m.decodeDict(d)
	case json.Number:
		return decodeNumber(token.String())
	case string:
		m.Grow(len(token))
		return token, nil
	}
	return token, nil // nil or bool
}

func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // infinity, as in Python
		}
		return f, err
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) > 4300 {
		return nil, fmt.Errorf("json: integer %.20s of %d digits, expected 4300 at most", s, len(s))
	}
	return Integer(n), nil
}

func (m *Machine) decodeList(d *json.Decoder) (Value, error) {
	var items []Value
	for d.More() {
		item, err := m.decode(d)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := d.Token()
	return m.NewList(items), err
}

func (m *Machine) decodeDict(d *json.Decoder) (Value, error) {
	dict := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := m.decode(d)
		if err != nil {
			return nil, err
		}
		m.Set(dict, key, value)
	}
	_, err := d.Token()
	return dict, err
}

// Style is how Encode writes.
type Style struct {
	ASCII     bool
	SortKeys  bool
	Indented  bool
	Indent    string // of one level
	Item, Key string // separators
}

type encoder struct {
	*Machine
	style Style
	b     strings.Builder
}

// Encode is json.dumps(v).
func (m *Machine) Encode(v Value, style Style) string {
	e := &encoder{Machine: m, style: style}
	e.encode(v, 0)
	return e.b.String()
}

func (e *encoder) write(s string) {
	e.Grow(len(s))
	e.b.WriteString(s)
}

func (e *encoder) line(level int) {
	if e.style.Indented {
		e.Times(len(e.style.Indent), level)
		e.write("\n" + strings.Repeat(e.style.Indent, level))
	}
}

func (e *encoder) encode(v Value, level int) {
	e.Enter()
	defer e.Leave()
	e.Step(1)
	if s, ok := Text(v); ok {
		e.text(s)
		return
	}
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64:
		e.write(scalar(v))
	case *List:
		e.sequence(v.Items, level)
	case *Tuple:
		e.sequence(v.Items, level)
	case *Dict:
		e.dict(v, level)
	default:
		Raise(KindType, "Object of type %s is not JSON serializable", TypeName(v))
	}
}

func scalar(v Value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	}
	f, _ := ToFloat(v)
	switch s := FloatText(f); s {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	default:
		return s
	}
}

func (e *encoder) sequence(items []Value, level int) {
	if len(items) == 0 {
		e.write("[]")
		return
	}
	e.write("[")
	for i, item := range items {
		if i > 0 {
			e.write(e.style.Item)
		}
		e.line(level + 1)
		e.encode(item, level+1)
	}
	e.line(level)
	e.write("]")
}

func (e *encoder) dict(d *Dict, level int) {
	if d.Len() == 0 {
		e.write("{}")
		return
	}
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if e.style.SortKeys {
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case e.Order("<", d.keys[i], d.keys[j]):
				return -1
			case e.Order("<", d.keys[j], d.keys[i]):
				return 1
			}
			return 0
		})
	}
	e.write("{")
	for n, i := range order {
		if n > 0 {
			e.write(e.style.Item)
		}
		e.line(level + 1)
		switch key := d.keys[i].(type) {
		case string:
			e.text(key)
		case Markup:
			e.text(string(key))
		case nil, bool, int64, *big.Int, float64:
			e.write(`"` + scalar(key) + `"`)
		default:
			Raise(KindType, "keys must be str, int, float, bool or None, not %s", TypeName(key))
		}
		e.write(e.style.Key)
		e.encode(d.values[i], level+1)
	}
	e.line(level)
	e.write("}")
}

func (e *encoder) text(s string) {
	e.Grow(len(s) + 2)
	e.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			e.b.WriteByte('\\')
			e.b.WriteRune(r)
		case r == '\n':
			e.b.WriteString(`\n`)
		case r == '\r':
			e.b.WriteString(`\r`)
		case r == '\t':
			e.b.WriteString(`\t`)
		case r == '\b':
			e.b.WriteString(`\b`)
		case r == '\f':
			e.b.WriteString(`\f`)
		case r < ' ' || e.style.ASCII && r > 0x7e && r < 0x10000:
			e.write(fmt.Sprintf(`\u%04x`, r))
		case e.style.ASCII && r >= 0x10000:
			r -= 0x10000
			e.write(fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff))
		default:
			e.b.WriteRune(r)
		}
	}
	e.b.WriteByte('"')
}
