package py

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Upper implements str.upper.
func (m *Machine) Upper(s string) string {
	m.Charge(3 * len(s))
	if ASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

// Lower implements str.lower.
func (m *Machine) Lower(s string) string {
	m.Charge(3 * len(s))
	if ASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// ASCII reports whether s is ASCII only.
func ASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Offset returns the byte offset of character n of s, or len(s) if s is shorter.
func Offset(s string, n int) int {
	if ASCII(s[:min(n, len(s))]) {
		return min(n, len(s))
	}
	at := 0
	for ; n > 0 && at < len(s); n-- {
		at += RuneLen(s[at:])
	}
	return at
}

// Capitalize implements str.capitalize.
func (m *Machine) Capitalize(s string) string {
	if s == "" {
		return s
	}
	n := RuneLen(s)
	return title(s[:n]) + m.Lower(s[n:])
}

// title returns the title case of one character.
func title(c string) string {
	if len(c) > 1 {
		return cases.Title(language.Und, cases.NoLower).String(c)
	}
	return strings.ToUpper(c)
}

// cased reports whether a character has case.
func cased(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }

// TitleWords implements str.title.
func (m *Machine) TitleWords(s string) string {
	m.Charge(3 * len(s))
	var b strings.Builder
	inside := false
	for _, r := range s {
		switch {
		case inside:
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteString(title(string(r)))
		}
		inside = cased(r)
	}
	return b.String()
}

// SwapCase implements str.swapcase for characters whose other case is one character. The
// caller charges for the result.
func SwapCase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsUpper(r):
			return unicode.ToLower(r)
		case unicode.IsLower(r):
			return unicode.ToUpper(r)
		}
		return r
	}, s)
}

// Strip implements str.strip, lstrip and rstrip. A nil chars means white space.
func (m *Machine) Strip(s string, chars Value, left, right bool) string {
	m.Scan(len(s))
	in := IsSpace
	if chars != nil {
		set, ok := Text(chars)
		if !ok {
			Raise(KindType, "strip arg must be None or str")
		}
		m.Scan(len(s) * min(len(set), 256))
		in = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

// Split implements str.split. A nil sep means runs of white space; a negative n means no
// limit.
func (m *Machine) Split(s string, sep Value, n int) []string {
	m.Scan(len(s))
	if sep == nil {
		return m.words(s, n)
	}
	by, ok := Text(sep)
	if !ok {
		Raise(KindType, "must be str or None, not %s", TypeName(sep))
	}
	if by == "" {
		Raise(KindValue, "empty separator")
	}
	m.Charge(16 * (1 + strings.Count(s, by)))
	if n < 0 {
		return strings.Split(s, by)
	}
	return strings.SplitN(s, by, n+1)
}

// words splits s at white space at most n times; a negative n means no limit.
func (m *Machine) words(s string, n int) []string {
	var parts []string
	for s = strings.TrimLeftFunc(s, IsSpace); s != ""; s = strings.TrimLeftFunc(s, IsSpace) {
		m.Charge(16)
		if n >= 0 && len(parts) == n {
			return append(parts, s)
		}
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return parts
}

// RSplit implements str.rsplit, with the parameters of Split.
func (m *Machine) RSplit(s string, sep Value, n int) []string {
	if n < 0 {
		return m.Split(s, sep, -1)
	}
	m.Scan(len(s))
	var parts []string // from the last to the first
	by := ""
	if sep != nil {
		by = WantText("rsplit", sep)
		if by == "" {
			Raise(KindValue, "empty separator")
		}
	}
	for {
		at, size := strings.LastIndex(s, by), len(by)
		if sep == nil {
			s = strings.TrimRightFunc(s, IsSpace)
			if s == "" {
				break
			}
			at, size = strings.LastIndexFunc(s, IsSpace), 0
			if at >= 0 {
				size = RuneLen(s[at:])
			}
		}
		m.Charge(16)
		if at < 0 || len(parts) == n {
			parts = append(parts, s)
			break
		}
		parts = append(parts, s[at+size:])
		s = s[:at]
	}
	slices.Reverse(parts)
	return parts
}

// Lines implements str.splitlines. keepEnds keeps the line ends.
func (m *Machine) Lines(s string, keepEnds bool) []string {
	m.Scan(len(s))
	var lines []string
	for s != "" {
		m.Charge(16)
		at := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if at < 0 {
			return append(lines, s)
		}
		end := at + RuneLen(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			end = at + 2
		}
		if keepEnds {
			at = end
		}
		lines = append(lines, s[:at])
		s = s[end:]
	}
	return lines
}

// Side is the side of a text that Pad pads.
type Side int

// The sides. Both is as in str.center: an odd gap puts one more on the left if the width is
// odd, else on the right.
const (
	Right Side = iota
	Left
	Both
)

// Pad pads s to width characters with fill, one character.
func (m *Machine) Pad(s string, width int, fill string, side Side) string {
	gap := width - Runes(s)
	if gap <= 0 {
		return s
	}
	m.Charge(len(s))
	m.ChargeCopies(len(fill), gap)
	left := 0
	switch side {
	case Left:
		left = gap
	case Both:
		left = gap/2 + (gap & width & 1)
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, gap-left)
}

// Replace implements str.replace. A negative n means no limit.
func (m *Machine) Replace(s, from, to string, n int) string {
	m.Scan(len(s))
	count := strings.Count(s, from)
	if n >= 0 {
		count = min(count, n)
	}
	m.ChargeCopies(len(to), count)
	m.Charge(len(s))
	return strings.Replace(s, from, to, n)
}

// ExpandTabs implements str.expandtabs. It charges only for the spaces that replace tabs.
func (m *Machine) ExpandTabs(s string, size int) string {
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				m.ChargeCopies(1, n)
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1 // 0 after the increment below
		}
		b.WriteRune(r)
		column++
	}
	return b.String()
}

// Every implements str.isalpha and the like: s is not empty and every character passes.
func Every(s string, test func(rune) bool) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return !test(r) }) < 0
}

// IsTitle implements str.istitle.
func IsTitle(s string) bool {
	inside, found := false, false // inside a word; a word has been found
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inside {
				return false
			}
			inside = true
			found = true
		case unicode.IsLower(r):
			if !inside {
				return false
			}
		default:
			inside = false
		}
	}
	return found
}

// IsCase implements str.isupper if upper is set, else str.islower.
func IsCase(s string, upper bool) bool {
	found := false
	for _, r := range s {
		if unicode.IsTitle(r) || unicode.IsUpper(r) != upper && cased(r) {
			return false
		}
		found = found || cased(r)
	}
	return found
}

// Runes returns the number of characters of s.
func Runes(s string) int { return utf8.RuneCountInString(s) }

// RuneLen returns the number of bytes of the first rune of s, which must not be empty.
func RuneLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// IsSpace implements str.isspace for one character.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// asciiDigits replaces decimal digits of other scripts by ASCII ones, as int() and float()
// do.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || !unicode.Is(unicode.Nd, r) {
			return r
		}
		digit := rune(0) // Unicode has a script's ten digits in a row
		for unicode.Is(unicode.Nd, r-1) && digit < 9 {
			r--
			digit++
		}
		return '0' + digit
	}, s)
}
