package engine

import (
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// conversions reads the conversions of a % format, such as %5d or %(name)s, and their
// arguments.
type conversions struct {
	format string     // part of the format that is not yet read
	args   []py.Value // positional arguments
	used   int        // number of args that next has returned
	named  *py.Dict   // named arguments, or nil
}

// next returns the next argument.
func (c *conversions) next() py.Value {
	if c.used >= len(c.args) {
		py.Raise(py.KindType, "not enough arguments for format string")
	}
	c.used++
	return c.args[c.used-1]
}

// key reads the name of a conversion in parentheses, or returns nil if it has none.
func (c *conversions) key() py.Value {
	if !strings.HasPrefix(c.format, "(") {
		return nil
	}
	end := strings.IndexByte(c.format, ')')
	if end < 0 {
		py.Raise(py.KindValue, "incomplete format key")
	}
	if c.named == nil {
		py.Raise(py.KindType, "format requires a mapping")
	}
	key := c.format[1:end]
	c.format = c.format[end+1:]
	return key
}

// number reads a width or a precision. An asterisk takes it from the arguments.
func (c *conversions) number() int {
	if strings.HasPrefix(c.format, "*") {
		c.format = c.format[1:]
		return py.WantInt(c.next())
	}
	n := 0
	for c.format != "" && c.format[0] >= '0' && c.format[0] <= '9' && n < 1<<30 {
		n, c.format = 10*n+int(c.format[0]-'0'), c.format[1:]
	}
	return n
}

// spec reads a conversion after its name: flags, width, precision, a length modifier, which
// has no effect, and the verb.
func (c *conversions) spec() spec {
	s := spec{fill: " ", align: '>', precision: -1}
flags:
	for c.format != "" {
		switch c.format[0] {
		case '-':
			s.align = '<'
		case '+':
			s.sign = '+'
		case ' ':
			if s.sign == 0 {
				s.sign = ' '
			}
		case '#':
			s.alternate = true
		case '0':
			s.zero = true
		default:
			break flags
		}
		c.format = c.format[1:]
	}
	s.width = c.number()
	if strings.HasPrefix(c.format, ".") {
		c.format = c.format[1:]
		s.precision = max(0, c.number())
	}
	c.format = strings.TrimLeft(c.format, "hlL")
	if c.format == "" {
		py.Raise(py.KindValue, "incomplete format")
	}
	s.verb = c.format[0]
	c.format = c.format[1:]
	return s
}

// percent evaluates format % v. escape is set if format is Markup.
func (e *executor) percent(format string, v py.Value, escape bool) string {
	c := conversions{format: format, args: []py.Value{v}}
	c.named, _ = v.(*py.Dict)
	if t, ok := v.(*py.Tuple); ok {
		c.args = t.Items
	}
	var b strings.Builder
	for {
		at := strings.IndexByte(c.format, '%')
		if at < 0 {
			break
		}
		e.Step(1)
		e.Charge(at)
		b.WriteString(c.format[:at])
		c.format = c.format[at+1:]
		key := c.key()
		s := c.spec()
		if s.verb == '%' {
			b.WriteByte('%')
			continue
		}
		arg := key
		if key == nil {
			arg = c.next()
		} else if got, ok := e.Get(c.named, key); ok {
			arg = got
		} else {
			py.Raise("KeyError", "%s", e.Repr(key))
		}
		if escape && s.verb == 's' {
			arg = e.Escape(arg)
		}
		text := e.percentValue(s, arg)
		e.Charge(len(text))
		b.WriteString(text)
	}
	mapping := c.named != nil
	switch v.(type) {
	case *py.List, *py.Range, *py.Undefined:
		mapping = true // Python takes every value with subscripts for a mapping
	}
	if c.used < len(c.args) && !mapping {
		py.Raise(py.KindType, "not all arguments converted during string formatting")
	}
	return b.String() + c.format
}

// percentValue returns the text of one conversion.
func (e *executor) percentValue(s spec, v py.Value) string {
	if s.zero && s.align == '>' && strings.IndexByte("sracs", s.verb) < 0 {
		s.fill, s.align = "0", '='
	}
	switch s.verb {
	case 's':
		return e.pad(s, s.clip(e.Str(v)))
	case 'r', 'a':
		return e.pad(s, s.clip(e.Repr(v)))
	case 'c':
		if n, ok := v.(int64); ok && n >= 0 && n <= 0x10ffff {
			return e.pad(s, string(rune(n)))
		}
		if text, ok := py.Text(v); ok && py.Runes(text) == 1 {
			return e.pad(s, text)
		}
		py.Raise(py.KindType, "%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		e.Check(v)
		if f, ok := v.(float64); ok && strings.IndexByte("diu", s.verb) >= 0 {
			v, _ = py.Int(f, 10)
		}
		n, ok := py.ToBig(v)
		if !ok {
			py.Raise(py.KindType, "%%%c format: a real number is required, not %s", s.verb, py.TypeName(v))
		}
		if s.verb == 'i' || s.verb == 'u' {
			s.verb = 'd'
		}
		s.precision = -1
		return e.integer(s, n)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		e.Check(v)
		f, ok := py.ToFloat(v)
		if !ok {
			py.Raise(py.KindType, "must be real number, not %s", py.TypeName(v))
		}
		return e.float(s, f)
	}
	py.Raise(py.KindValue, "unsupported format character '%c' (0x%x)", s.verb, s.verb)
	return ""
}
