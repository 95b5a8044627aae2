package expr

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The superscript and subscript digits, in the order of smallSigns.
const (
	above      = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ"
	below      = "₀₁₂₃₄₅₆₇₈₉₊₋ₙ"
	smallSigns = "0123456789+-n"
)

// Fractions spells out the fraction signs of s: ¾ becomes 3/4, 2¾ becomes 2 3/4, ³⁄₄
// becomes 3/4.
func Fractions(s string) string {
	if !strings.ContainsAny(s, "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒⁄"+below) {
		return s
	}
	var b strings.Builder
	for at := 0; at < len(s); {
		text, n := fractionAt(s[at:])
		if n == 0 {
			_, n = utf8.DecodeRuneInString(s[at:])
			b.WriteString(s[at : at+n])
			at += n
			continue
		}
		if DigitAt(s, at-1) {
			b.WriteByte(' ')
		}
		at += n
		if next, _ := utf8.DecodeRuneInString(s[at:]); unicode.IsLetter(next) || next == '√' || next == '(' {
			text = "(" + text + ")"
		}
		b.WriteString(text)
	}
	return b.String()
}

// fractionAt returns the fraction that a sign or small digits at the start of s write,
// and its length in bytes.
func fractionAt(s string) (string, int) {
	if s[0] < utf8.RuneSelf {
		return "", 0
	}
	const signs = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒⁄"
	r, n := utf8.DecodeRuneInString(s)
	if at := strings.IndexRune(signs, r); at >= 0 {
		texts := [...]string{"1/2", "1/3", "2/3", "1/4", "3/4", "1/5", "2/5", "3/5", "4/5", "1/6", "5/6", "1/7", "1/8",
			"3/8", "5/8", "7/8", "1/9", "1/10", "/"}
		return texts[utf8.RuneCountInString(signs[:at])], n
	}
	num, n := small(s, above)
	if rest := s[n:]; n > 0 && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "⁄")) {
		_, slash := utf8.DecodeRuneInString(rest)
		if den, m := small(rest[slash:], below); m > 0 {
			return num + "/" + den, n + slash + m
		}
	}
	return "", 0
}

// small returns the text of the small digits at the start of s and their length.
func small(s, set string) (string, int) {
	var b strings.Builder
	for i, r := range s {
		k := strings.IndexRune(set, r)
		if k < 0 {
			return b.String(), i
		}
		b.WriteByte(smallSigns[utf8.RuneCountInString(set[:k])])
	}
	return b.String(), len(s)
}

// raised rewrites small digits as exponents and subscripts.
func raised(s string) string {
	if !strings.ContainsAny(s, above+below) {
		return s
	}
	var b strings.Builder
	for at := 0; at < len(s); {
		mark := "^"
		text, n := small(s[at:], above)
		if n == 0 {
			mark = "_"
			text, n = small(s[at:], below)
		}
		switch {
		case n == 0:
			_, n = utf8.DecodeRuneInString(s[at:])
			b.WriteString(s[at : at+n])
		case len(text) == 1:
			b.WriteString(mark + text)
		default:
			b.WriteString(mark + "{" + text + "}")
		}
		at += n
	}
	return b.String()
}
