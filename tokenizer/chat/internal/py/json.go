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

// DecodeJSON decodes one JSON value like Python's json.loads: objects keep the order of their
// keys, and a number without a fraction or an exponent is an int. It returns an error for
// malformed JSON and raises the machine's limits.
func (m *Machine) DecodeJSON(data []byte) (Value, error) {
	d := decoder{Machine: m, tokens: json.NewDecoder(bytes.NewReader(data))}
	d.tokens.UseNumber()
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if _, err := d.tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("json: found more than one value, expected one")
	}
	return v, nil
}

// decoder builds values from JSON tokens, one by one: encoding/json's maps would lose the
// order of the keys.
type decoder struct {
	*Machine
	tokens *json.Decoder
}

// value reads the next value.
func (d decoder) value() (Value, error) {
	token, err := d.tokens.Token()
	if err != nil {
		return nil, err
	}
	d.Enter()
	defer d.Leave()
	d.Step(1)
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return d.list()
		}
		return d.dict()
	case json.Number:
		return decodeNumber(token.String())
	case string:
		d.Charge(len(token))
		return token, nil
	}
	return token, nil // nil or bool
}

// list reads the items of a list, whose bracket was read, and the closing bracket.
func (d decoder) list() (Value, error) {
	var items []Value
	for d.tokens.More() {
		item, err := d.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := d.tokens.Token()
	return d.NewList(items), err
}

// dict reads the items of an object, whose brace was read, and the closing brace.
func (d decoder) dict() (Value, error) {
	dict := NewDict()
	for d.tokens.More() {
		key, err := d.tokens.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.value()
		if err != nil {
			return nil, err
		}
		d.Set(dict, key, value)
	}
	_, err := d.tokens.Token()
	return dict, err
}

// maxDigits is the maximum number of digits of an integer in a text, as in CPython
// (sys.get_int_max_str_digits).
const maxDigits = 4300

// decodeNumber returns a float if s has a decimal point or an exponent, else an integer.
func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // a number too large for a float64 is infinity, as in Python
		}
		return f, err
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) > maxDigits {
		return nil, fmt.Errorf("json: integer %.20s… has %d digits, expected at most %d", s, len(s), maxDigits)
	}
	return Integer(n), nil
}

// JSONStyle holds the arguments of json.dumps.
type JSONStyle struct {
	ASCII    bool   // escapes all characters outside printable ASCII (ensure_ascii)
	SortKeys bool   // sorts the keys of objects
	Indented bool   // puts each item on a line of its own
	Indent   string // indentation of one level, used if Indented is set
	Item     string // separator between items, such as ", "
	Key      string // separator between a key and its value, such as ": "
}

type encoder struct {
	*Machine
	style JSONStyle
	b     strings.Builder
}

// EncodeJSON implements json.dumps(v).
func (m *Machine) EncodeJSON(v Value, style JSONStyle) string {
	e := &encoder{Machine: m, style: style}
	e.encode(v, 0)
	return e.b.String()
}

func (e *encoder) write(s string) {
	e.Charge(len(s))
	e.b.WriteString(s)
}

// line starts a new line at a level of indentation if the style is indented.
func (e *encoder) line(level int) {
	if e.style.Indented {
		e.ChargeCopies(len(e.style.Indent), level)
		e.write("\n" + strings.Repeat(e.style.Indent, level))
	}
}

// encode writes v, which is nested in level lists and dicts.
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

// scalar returns the JSON text of None, a bool or a number. Like Python, it writes NaN and
// infinities, which JSON lacks.
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
			a, _ := d.At(i)
			b, _ := d.At(j)
			return e.Compare(a, b)
		})
	}
	e.write("{")
	for n, i := range order {
		if n > 0 {
			e.write(e.style.Item)
		}
		e.line(level + 1)
		key, value := d.At(i)
		switch key := key.(type) {
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
		e.encode(value, level+1)
	}
	e.line(level)
	e.write("}")
}

// text writes a JSON string.
func (e *encoder) text(s string) {
	e.Charge(len(s) + 2)
	backslashes := 0 // not yet charged
	escape := func(c byte) {
		e.b.WriteByte('\\')
		e.b.WriteByte(c)
		backslashes++
	}
	e.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			escape(byte(r))
		case r == '\n':
			escape('n')
		case r == '\r':
			escape('r')
		case r == '\t':
			escape('t')
		case r == '\b':
			escape('b')
		case r == '\f':
			escape('f')
		case r < ' ' || e.style.ASCII && r > 0x7e && r < 0x10000:
			e.write(fmt.Sprintf(`\u%04x`, r))
		case e.style.ASCII && r >= 0x10000:
			r -= 0x10000
			high, low := 0xd800+(r>>10), 0xdc00+(r&0x3ff) // surrogates
			e.write(fmt.Sprintf(`\u%04x\u%04x`, high, low))
		default:
			e.b.WriteRune(r)
		}
	}
	e.b.WriteByte('"')
	if backslashes > 0 {
		e.Charge(backslashes)
	}
}
