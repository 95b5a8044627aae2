package format

import (
	"fmt"
	"math"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// FormatValue implements format(v, spec) with Python's mini-language.
func (fm Formatter) FormatValue(v py.Value, text string) string {
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
		return fm.Str(v)
	case isInt && strings.IndexByte("dxXobn", s.verb) >= 0 || isInt && s.verb == 0:
		return fm.integer(s, n)
	case isInt && s.verb == 'c':
		return fm.pad(s, string(rune(n.Int64())))
	case (isInt || isFloat) && strings.IndexByte("fFeEgGn%", s.verb) >= 0:
		f, _ := py.ToFloat(v)
		return fm.float(s, f)
	case isFloat && s.verb == 0:
		f, _ := py.ToFloat(v)
		if s.precision < 0 {
			digits := py.FloatText(math.Abs(f))
			if s.group != 0 {
				digits = group(digits, s.group)
			}
			return fm.signed(s, math.Signbit(f), digits)
		}
		s.verb = 'g'
		return fm.float(s, f)
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
	return fm.pad(s, s.clip(plain))
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
