package expr

import (
	"math/big"
	"strings"
)

// Numerals returns the words for the numbers below twenty.
func Numerals() []string {
	return []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
		"twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"}
}

// notation says how numbers are written at a place in a text.
type notation struct {
	Mode
	listed   bool // a comma separates items: (100,101) has two
	argument bool // of \frac, without an exponent
}

// read consumes the number at the cursor. It returns nil if the number has no value.
func (f notation) read(c *cursor) *Node {
	var b strings.Builder
	b.WriteString(c.digits())
	if n := b.Len(); n >= 1 && n <= 3 {
		for sep := f.separator(c.rest()); sep > 0; sep = f.separator(c.rest()) {
			c.at += sep
			b.WriteString(c.take(3))
		}
	}
	whole, decimals := b.String(), ""
	if !c.done() && (c.s[c.at] == '.' || c.s[c.at] == ',' && f.Decimal) {
		if DigitAt(c.s, c.at+1) || c.s[c.at] == '.' && !LetterAt(c.s, c.at+1) {
			c.at++
			decimals = c.digits()
		}
		if digits := period(c, decimals); digits != "" {
			return repeating(whole, decimals, digits)
		}
	}
	return f.decimal(c, whole, decimals)
}

// separator returns the length of the thousands separator at the start of s, or 0.
// Exactly three digits must follow it.
func (f notation) separator(s string) int {
	for _, sep := range []string{`,\!`, `{,}`, `{,\!}`, `\,`, `\!,\!`, `\!,`, `\ `, `\;`, `\:`, "~", "_", ",", " "} {
		if !strings.HasPrefix(s, sep) {
			continue
		}
		if sep == " " && !f.Thousands || sep == "," && (!f.Thousands || f.listed) {
			return 0
		}
		n := len(sep)
		for n < len(s) && s[n] == ' ' && strings.HasSuffix(sep, `\!`) {
			n++
		}
		if digitsAt(s, n) == 3 {
			return n
		}
	}
	return 0
}

// decimal returns the number with the digits whole before the decimal point and decimals after it. It
// consumes an exponent at the cursor, as in 1.5e-3.
func (f notation) decimal(c *cursor, whole, decimals string) *Node {
	n := &Node{Kind: Number, Places: len(decimals), Figures: len(strings.TrimLeft(whole+decimals, "0")), Digits: whole}
	if decimals != "" {
		n.Digits += "." + decimals
	}
	text := n.Digits
	if look := *c; !f.argument && (look.accept("e") || look.accept("E")) {
		_ = look.accept("-") || look.accept("+")
		if exponent := look.digits(); len(exponent) >= 1 && len(exponent) <= 3 {
			text += c.take(look.at - c.at)
		}
	}
	if whole == "" {
		text = "0" + text
	}
	var ok bool
	if n.Value, ok = new(big.Rat).SetString(text); !ok {
		return nil
	}
	return n
}

// period consumes the mark that makes decimals repeat forever and returns the repeating
// digits: the 6 of 0.1\overline{6} and, if they occur often enough, of 0.1666… It
// returns "" if there is no mark.
func period(c *cursor, decimals string) string {
	if len(decimals) > 60 {
		return ""
	}
	look := *c
	if decimals == "" && DigitAt(c.s, c.at-1) {
		return ""
	}
	if look.accept("(") { // 1.(3)
		if digits := look.digits(); digits != "" && len(digits) <= 60 && look.accept(")") {
			*c = look
			return digits
		}
		return ""
	}
	for _, command := range []string{`\overline`, `\bar`, `\dot`, `\overset{.}`} {
		if !look.accept(command) {
			continue
		}
		look.skipSpaces()
		braced := look.accept("{")
		digits := look.digits()
		if digits == "" || len(digits) > 60 || braced && !look.accept("}") {
			return ""
		}
		*c = look
		return digits
	}
	look.skipSpaces()
	for _, dots := range []string{"...", "…", `\ldots`, `\dots`, `\cdots`} {
		if look.accept(dots) {
			digits := tail(decimals)
			if digits != "" {
				*c = look
			}
			return digits
		}
	}
	return ""
}

// tail returns the shortest run of digits that ends decimals at least twice, or at
// least three times if it is a single digit. It returns "" if there is none.
func tail(decimals string) string {
	for n := 1; 2*n <= len(decimals); n++ {
		period := decimals[len(decimals)-n:]
		if times := 2 + max(0, 2-n); strings.HasSuffix(decimals, strings.Repeat(period, times)) &&
			strings.Trim(period, "0") != "" {
			return period
		}
	}
	return ""
}

// repeating returns the number whose decimals end in period forever. The arguments are
// digits.
func repeating(whole, decimals, period string) *Node {
	value, ok := new(big.Rat).SetString("0" + whole + "." + decimals + "0")
	cycle, both := new(big.Int).SetString(period, 10)
	if !ok || !both {
		return nil
	}
	ten := big.NewInt(10)
	nines := new(big.Int).Sub(new(big.Int).Exp(ten, big.NewInt(int64(len(period))), nil), big.NewInt(1))
	nines.Mul(nines, new(big.Int).Exp(ten, big.NewInt(int64(len(decimals))), nil))
	return &Node{Kind: Number, Value: value.Add(value, new(big.Rat).SetFrac(cycle, nines))}
}
