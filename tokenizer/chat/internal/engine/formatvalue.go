package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// formatValue implements format(v, text) with Python's format specification mini-language.
func (e *executor) formatValue(v py.Value, text string) string {
	s := formatSpec(text)
	n, isInt := py.ToBig(v)
	_, isFloat := v.(float64)
	if (isInt || isFloat) && s.align == 0 {
		s.align = '>'
		if s.zero {
			s.align, s.fill = '=', "0"
		}
	}
	switch {
	case text == "":
		return e.Str(v)
	case isInt && strings.IndexByte("dxXobn", s.verb) >= 0 || isInt && s.verb == 0:
		return e.integer(s, n)
	case isInt && s.verb == 'c':
		return e.pad(s, string(rune(n.Int64())))
	case (isInt || isFloat) && strings.IndexByte("fFeEgGn%", s.verb) >= 0:
		f, _ := py.ToFloat(v)
		return e.float(s, f)
	case isFloat && s.verb == 0:
		f, _ := py.ToFloat(v)
		if s.precision < 0 {
			digits := py.FloatText(math.Abs(f))
			if s.group != 0 {
				digits = group(digits, s.group)
			}
			return e.signed(s, math.Signbit(f), digits)
		}
		s.verb = 'g'
		return e.float(s, f)
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
	return e.pad(s, s.clip(plain))
}

// formatSpec parses [[fill]align][sign][#][0][width][group][.precision][verb]. It raises
// ValueError for other texts.
func formatSpec(text string) spec {
	original := text
	s := spec{fill: " ", precision: -1}
	if text != "" {
		n := py.RuneLen(text)
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
			n = min(10*n+int(c-'0'), maxSpecNumber)
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
		py.Raise(py.KindValue, "Invalid format specifier '%s'", fmt.Sprintf("%.40s", original))
	}
	return s
}

// maxSpecNumber bounds a width or a precision, so that parsing cannot overflow. The limit
// of bytes is lower.
const maxSpecNumber = 1 << 30

// strftime implements t.strftime(format) in the C locale, with the GNU flags - _ 0 ^.
func (e *executor) strftime(t time.Time, format string) string {
	e.Charge(len(format))
	var b strings.Builder
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 || at == len(format)-1 {
			return b.String() + format
		}
		b.WriteString(format[:at])
		format = format[at+1:]
		flag := byte(0)
		if strings.IndexByte("-_0^", format[0]) >= 0 && len(format) > 1 {
			flag, format = format[0], format[1:]
		}
		field := strftimeField(t, format[0])
		if field == "" {
			field = "%" + format[:1]
		}
		isNumber := len(field) > 1 && strings.Trim(field, "0123456789 ") == ""
		switch {
		case flag == '^':
			field = strings.ToUpper(field)
		case isNumber && (flag == '-' || flag == '_'):
			digits := strings.TrimLeft(field, "0 ")
			if digits == "" {
				digits = "0"
			}
			if flag == '_' {
				digits = strings.Repeat(" ", len(field)-len(digits)) + digits
			}
			field = digits
		}
		e.Charge(len(field))
		b.WriteString(field)
		format = format[1:]
	}
}

// strftimeField returns the text of one conversion, or "" if it is unknown.
func strftimeField(t time.Time, c byte) string {
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'B': "January", 'b': "Jan", 'h': "Jan",
		'A': "Monday", 'a': "Mon", 'y': "06", 'p': "PM", 'I': "03", 'j': "002", 'Z': "MST", 'z': "-0700", 'e': "_2",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05",
		'c': "Mon Jan _2 15:04:05 2006", 'r': "03:04:05 PM",
	}
	if layout, ok := layouts[c]; ok {
		return t.Format(layout)
	}
	mondayBased := (int(t.Weekday()) + 6) % 7 // 0 for Monday
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 'P':
		return strings.ToLower(t.Format("PM"))
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'w':
		return strconv.Itoa(int(t.Weekday()))
	case 'u':
		return strconv.Itoa(mondayBased + 1)
	case 'V':
		return fmt.Sprintf("%02d", isoWeek)
	case 'G':
		return strconv.Itoa(isoYear)
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-mondayBased)/7)
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '%':
		return "%"
	}
	return ""
}
