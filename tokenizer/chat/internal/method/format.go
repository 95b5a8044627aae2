package method

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// spec is how one value is formatted.
type spec struct {
	fill      string
	align     byte // < > ^ = or 0
	sign      byte // + space or 0
	alternate bool
	zero      bool
	group     byte // , _ or 0
	width     int
	precision int // -1 if not given
	verb      byte
}

// Percent is format % v; escape is for a Markup's format.
func (m *Machine) Percent(format string, v py.Value, escape bool) string {
	var args []py.Value
	named, isDict := v.(*py.Dict)
	if t, ok := v.(*py.Tuple); ok {
		args = t.Items
	} else {
		args = []py.Value{v}
	}
	used := 0
	next := func() py.Value {
		if used >= len(args) {
			py.Raise(py.KindType, "not enough arguments for format string")
		}
		used++
		return args[used-1]
	}
	var b strings.Builder
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 {
			break
		}
		m.Step(1)
		m.Grow(at)
		b.WriteString(format[:at])
		format = format[at+1:]
		var key py.Value
		key, format = m.percentKey(format, isDict)
		var s spec
		s, format = m.percentSpec(format, next)
		if s.verb == '%' {
			b.WriteByte('%')
			continue
		}
		arg := key
		if key == nil {
			arg = next()
		} else if got, ok := m.Get(named, key); ok {
			arg = got
		} else {
			py.Raise("KeyError", "%s", m.Repr(key))
		}
		if escape && s.verb == 's' {
			arg = m.Escape(arg)
		}
		text := m.percentValue(s, arg)
		m.Grow(len(text))
		b.WriteString(text)
	}
	mapping := isDict
	switch v.(type) {
	case *py.List, *py.Range, *py.Undefined: // they have subscripts, which is all that Python looks at
		mapping = true
	}
	if used < len(args) && !mapping {
		py.Raise(py.KindType, "not all arguments converted during string formatting")
	}
	return b.String() + format
}

// percentKey reads the name in parentheses that a conversion may begin with.
func (m *Machine) percentKey(format string, isDict bool) (key py.Value, rest string) {
	if !strings.HasPrefix(format, "(") {
		return nil, format
	}
	end := strings.IndexByte(format, ')')
	if end < 0 {
		py.Raise(py.KindValue, "incomplete format key")
	}
	if !isDict {
		py.Raise(py.KindType, "format requires a mapping")
	}
	return format[1:end], format[end+1:]
}

// percentSpec reads flags, width, precision and verb.
func (m *Machine) percentSpec(format string, next func() py.Value) (s spec, rest string) {
	s = spec{fill: " ", align: '>', precision: -1}
	number := func() int {
		if strings.HasPrefix(format, "*") {
			format = format[1:]
			return py.WantInt(next())
		}
		n := 0
		for format != "" && format[0] >= '0' && format[0] <= '9' && n < 1<<30 {
			n, format = 10*n+int(format[0]-'0'), format[1:]
		}
		return n
	}
flags:
	for format != "" {
		switch format[0] {
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
		format = format[1:]
	}
	s.width = number()
	if strings.HasPrefix(format, ".") {
		format = format[1:]
		s.precision = max(0, number())
	}
	format = strings.TrimLeft(format, "hlL")
	if format == "" {
		py.Raise(py.KindValue, "incomplete format")
	}
	s.verb = format[0]
	return s, format[1:]
}

func (m *Machine) percentValue(s spec, v py.Value) string {
	if s.zero && s.align == '>' && strings.IndexByte("sracs", s.verb) < 0 {
		s.fill, s.align = "0", '='
	}
	switch s.verb {
	case 's':
		return m.pad(s, m.clip(s, m.Str(v)))
	case 'r', 'a':
		return m.pad(s, m.clip(s, m.Repr(v)))
	case 'c':
		if n, ok := v.(int64); ok && n >= 0 && n <= 0x10ffff {
			return m.pad(s, string(rune(n)))
		}
		if text, ok := py.Text(v); ok && py.Runes(text) == 1 {
			return m.pad(s, text)
		}
		py.Raise(py.KindType, "%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		m.Check(v)
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
		return m.integer(s, n)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		m.Check(v)
		f, ok := py.ToFloat(v)
		if !ok {
			py.Raise(py.KindType, "must be real number, not %s", py.TypeName(v))
		}
		return m.float(s, f)
	}
	py.Raise(py.KindValue, "unsupported format character '%c' (0x%x)", s.verb, s.verb)
	return ""
}

// clip keeps as many characters as the precision says.
func (m *Machine) clip(s spec, text string) string {
	if s.precision < 0 || s.precision >= len(text) {
		return text
	}
	return text[:offset(text, s.precision)]
}

// pad fills a formatted value to its width; numbers have their sign first.
func (m *Machine) pad(s spec, text string) string {
	share := map[byte]int{'<': 0, '>': 1, '=': 1, '^': 2}[s.align]
	if s.align == '^' {
		gap := max(0, s.width-py.Runes(text))
		m.Times(len(s.fill), gap)
		return strings.Repeat(s.fill, gap/2) + text + strings.Repeat(s.fill, gap-gap/2)
	}
	sign := ""
	if s.align == '=' && text != "" && strings.IndexByte("+- ", text[0]) >= 0 {
		sign, text = text[:1], text[1:]
	}
	return sign + m.Pad(text, s.width-len(sign), s.fill, share)
}

func (m *Machine) signed(s spec, negative bool, digits string) string {
	switch {
	case negative:
		digits = "-" + digits
	case s.sign != 0:
		digits = string(rune(s.sign)) + digits
	}
	return m.pad(s, digits)
}

func (m *Machine) integer(s spec, n *big.Int) string {
	base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[s.verb]
	if base == 0 {
		base = 10
	}
	digits := new(big.Int).Abs(n).Text(base)
	if s.group != 0 {
		digits = group(digits, s.group)
	}
	if s.alternate && base != 10 {
		digits = "0" + strings.ToLower(string(rune(s.verb))) + digits
	}
	if s.verb == 'X' {
		digits = strings.ToUpper(digits)
	}
	return m.signed(s, n.Sign() < 0, digits)
}

// group puts a separator between thousands.
func group(digits string, by byte) string {
	whole, rest, _ := strings.Cut(digits, ".")
	if rest != "" {
		rest = "." + rest
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + string(rune(by)) + whole[i:]
	}
	return whole + rest
}

func (m *Machine) float(s spec, f float64) string {
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	m.Times(1, precision)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return m.signed(s, f < 0, strings.TrimLeft(py.FloatText(f), "-"))
	}
	text := ""
	switch verb := s.verb | 0x20; verb {
	case 'g', 'n':
		text = general(math.Abs(f), max(1, precision))
	case '%':
		text = strconv.FormatFloat(math.Abs(f)*100, 'f', precision, 64) + "%"
	default:
		text = strconv.FormatFloat(math.Abs(f), verb, precision, 64)
	}
	if s.group != 0 {
		text = group(text, s.group)
	}
	if s.verb == 'E' || s.verb == 'G' {
		text = strings.ToUpper(text)
	}
	return m.signed(s, math.Signbit(f), text)
}

// general is C's %g.
func general(f float64, precision int) string {
	e := strconv.FormatFloat(f, 'e', precision-1, 64)
	exponent, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:]) // FormatFloat wrote it
	if exponent < -4 || exponent >= precision {
		mantissa, power, _ := strings.Cut(e, "e")
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + power
	}
	text := strconv.FormatFloat(f, 'f', max(0, precision-1-exponent), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// FormatValue is format(v, spec) of Python's mini-language.
func (m *Machine) FormatValue(v py.Value, text string) string {
	s := formatSpec(text)
	n, isInt := py.ToBig(v)
	_, isFloat := v.(float64)
	if _, isBool := v.(bool); isBool && text == "" {
		isInt = false
	}
	if (isInt || isFloat) && s.align == 0 {
		s.align = '>'
		if s.zero {
			s.align, s.fill = '=', "0"
		}
	}
	switch {
	case text == "":
		return m.Str(v)
	case isInt && strings.IndexByte("dxXobn", s.verb) >= 0 || isInt && s.verb == 0:
		return m.integer(s, n)
	case isInt && s.verb == 'c':
		return m.pad(s, string(rune(n.Int64())))
	case (isInt || isFloat) && strings.IndexByte("fFeEgGn%", s.verb) >= 0:
		f, _ := py.ToFloat(v)
		return m.float(s, f)
	case isFloat && s.verb == 0:
		f, _ := py.ToFloat(v)
		if s.precision < 0 {
			digits := py.FloatText(math.Abs(f))
			if s.group != 0 {
				digits = group(digits, s.group)
			}
			return m.signed(s, math.Signbit(f), digits)
		}
		s.verb = 'g'
		return m.float(s, f)
	}
	plain, isText := py.Text(v)
	if isInt || isFloat {
		py.Raise(py.KindValue, "Unknown format code '%c' for object of type '%s'", s.verb, py.TypeName(v))
	}
	if !isText {
		py.Raise(py.KindType, "unsupported format string passed to %s.__format__", py.TypeName(v))
	}
	if s.verb != 0 && s.verb != 's' {
		py.Raise(py.KindValue, "Unknown format code '%c' for object of type 'str'", s.verb)
	}
	if s.align == 0 {
		s.align = '<'
	}
	return m.pad(s, m.clip(s, plain))
}

func formatSpec(text string) spec {
	whole := text
	s := spec{fill: " ", precision: -1}
	if n := 0; text != "" {
		n = py.RuneLen(text)
		if len(text) > n && strings.IndexByte("<>^=", text[n]) >= 0 {
			s.fill, s.align, text = text[:n], text[n], text[n+1:]
		} else if strings.IndexByte("<>^=", text[0]) >= 0 {
			s.align, text = text[0], text[1:]
		}
	}
	take := func(set string) byte {
		if text == "" || strings.IndexByte(set, text[0]) < 0 {
			return 0
		}
		c := text[0]
		text = text[1:]
		return c
	}
	number := func() (n int) {
		for c := take("0123456789"); c != 0; c = take("0123456789") {
			n = min(10*n+int(c-'0'), 1<<30)
		}
		return n
	}
	if s.sign = take("+- "); s.sign == '-' {
		s.sign = 0
	}
	s.alternate = take("#") != 0
	s.zero = take("0") != 0
	s.width = number()
	s.group = take(",_")
	if take(".") != 0 {
		s.precision = number()
	}
	s.verb = take("sdxXobncfFeEgG%")
	if text != "" {
		py.Raise(py.KindValue, "Invalid format specifier '%s'", fmt.Sprintf("%.40s", whole))
	}
	return s
}
