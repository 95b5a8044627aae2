// Package format writes values as Python's % operator, format and strftime do.
package format

import (
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Formatter formats values within a budget.
type Formatter struct{ *py.Machine }

// New returns a Formatter that uses the budget of m.
func New(m *py.Machine) Formatter {
	return Formatter{Machine: m}
}

// spec is the format of one value.
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

// clip truncates text to the precision.
func (s spec) clip(text string) string {
	if s.precision < 0 || s.precision >= len(text) {
		return text
	}
	return text[:py.Offset(text, s.precision)]
}

// pad pads a formatted value to its width. A number's sign comes before the padding.
func (fm Formatter) pad(s spec, text string) string {
	share := map[byte]int{'<': 0, '>': 1, '=': 1, '^': 2}[s.align]
	if s.align == '^' {
		gap := max(0, s.width-py.Runes(text))
		fm.Times(len(s.fill), gap)
		return strings.Repeat(s.fill, gap/2) + text + strings.Repeat(s.fill, gap-gap/2)
	}
	sign := ""
	if s.align == '=' && text != "" && strings.IndexByte("+- ", text[0]) >= 0 {
		sign, text = text[:1], text[1:]
	}
	return sign + fm.Pad(text, s.width-len(sign), s.fill, share)
}
