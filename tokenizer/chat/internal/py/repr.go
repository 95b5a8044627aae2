package py

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// Str returns str(v).
func (m *Machine) Str(v Value) string {
	if s, ok := Text(v); ok {
		return s
	}
	if _, ok := v.(*Undefined); ok {
		return ""
	}
	return m.Repr(v)
}

// Repr returns repr(v).
func (m *Machine) Repr(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return FloatText(v)
	case string:
		return m.Quote(v)
	case Markup:
		return "Markup(" + m.Quote(string(v)) + ")"
	case *Undefined:
		return "Undefined"
	case *Range:
		if v.Step == 1 {
			return fmt.Sprintf("range(%d, %d)", v.Start, v.Stop)
		}
		return fmt.Sprintf("range(%d, %d, %d)", v.Start, v.Stop, v.Step)
	case *Iter:
		return "<" + v.Type + " object>"
	case *Func:
		return "<built-in function " + v.Name + ">"
	case Object:
		m.Enter()
		defer m.Leave()
		return v.Repr(m)
	}
	return m.reprItems(v)
}

func (m *Machine) reprItems(v Value) string {
	m.Enter()
	defer m.Leave()
	var b strings.Builder
	write := func(s string) {
		m.Charge(len(s))
		b.WriteString(s)
	}
	switch v := v.(type) {
	case *List:
		m.reprSequence(write, "[", v.Items, "]")
	case *Tuple:
		end := ")"
		if len(v.Items) == 1 {
			end = ",)"
		}
		m.reprSequence(write, "(", v.Items, end)
	case *View:
		m.reprSequence(write, v.Type+"([", m.Items(v), "])")
	case *Dict:
		write("{")
		for i, key := range v.keys {
			if i > 0 {
				write(", ")
			}
			write(m.Repr(key))
			write(": ")
			write(m.Repr(v.values[i]))
		}
		write("}")
	default:
		write("<object>")
	}
	return b.String()
}

func (m *Machine) reprSequence(write func(string), begin string, items []Value, end string) {
	write(begin)
	for i, item := range items {
		if i > 0 {
			write(", ")
		}
		write(m.Repr(item))
	}
	write(end)
}

// Quote returns repr(s) of a str: in single quotes, or in double quotes if s contains only
// single ones.
func (m *Machine) Quote(s string) string {
	m.Charge(len(s) + 2)
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	if escapes := b.Len() - len(s) - 2; escapes > 0 {
		m.Charge(escapes)
	}
	return b.String()
}
