package engine

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// spec is the format of one value, in Python's format specification mini-language or in a
// conversion of the operator %.
type spec struct {
	fill      string // one character
	align     byte   // < > ^ = or 0 for the default of the value's type
	sign      byte   // '+' or ' ' before positive numbers, or 0 for nothing
	alternate bool   // prefix 0x, 0o or 0b
	zero      bool   // pads numbers with zeros after the sign
	group     byte   // ',' or '_' between thousands, or 0 for nothing
	width     int    // minimum number of characters
	precision int    // -1 if not given
	verb      byte   // presentation type, such as 'd', or 0 for the default
}

// clip truncates text to precision characters, if a precision is given.
func (s spec) clip(text string) string {
	if s.precision < 0 || s.precision >= len(text) {
		return text
	}
	return text[:py.Offset(text, s.precision)]
}

// pad pads a formatted value to its width. A number's sign comes before the padding.
func (e *executor) pad(s spec, text string) string {
	if s.align == '^' { // unlike str.center, an odd gap puts one more on the right
		gap := max(0, s.width-py.Runes(text))
		e.ChargeCopies(len(s.fill), gap)
		return strings.Repeat(s.fill, gap/2) + text + strings.Repeat(s.fill, gap-gap/2)
	}
	sign := ""
	if s.align == '=' && text != "" && strings.IndexByte("+- ", text[0]) >= 0 {
		sign, text = text[:1], text[1:]
	}
	side := py.Left
	if s.align == '<' {
		side = py.Right
	}
	return sign + e.Pad(text, s.width-len(sign), s.fill, side)
}

// signed returns digits with their sign, padded.
func (e *executor) signed(s spec, negative bool, digits string) string {
	switch {
	case negative:
		digits = "-" + digits
	case s.sign != 0:
		digits = string(rune(s.sign)) + digits
	}
	return e.pad(s, digits)
}

// integer formats an integer in the base of the verb.
func (e *executor) integer(s spec, n *big.Int) string {
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
	return e.signed(s, n.Sign() < 0, digits)
}

// group puts a separator between the thousands of the integer part.
func group(digits string, separator byte) string {
	integer, fraction, _ := strings.Cut(digits, ".")
	if fraction != "" {
		fraction = "." + fraction
	}
	for i := len(integer) - 3; i > 0; i -= 3 {
		integer = integer[:i] + string(rune(separator)) + integer[i:]
	}
	return integer + fraction
}

// float formats a float with the verb e, f, g, n or %, in either case.
func (e *executor) float(s spec, f float64) string {
	precision := s.precision
	if precision < 0 {
		precision = 6
	}
	e.ChargeCopies(1, precision)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return e.signed(s, f < 0, strings.TrimLeft(py.FloatText(f), "-"))
	}
	text := ""
	switch verb := s.verb | 0x20; verb { // in lower case
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
	return e.signed(s, math.Signbit(f), text)
}

// general returns C's %g.
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
