package py

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Upper implements str.upper.
func (m *Machine) Upper(s string) string {
	m.Grow(3 * len(s))
	if ASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

// Lower implements str.lower.
func (m *Machine) Lower(s string) string {
	m.Grow(3 * len(s))
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

// Offset returns the byte offset of character n of s.
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
	m.Grow(3 * len(s))
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

// SwapCase implements str.swapcase.
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
	m.Grow(16 * (1 + strings.Count(s, by)))
	if n < 0 {
		return strings.Split(s, by)
	}
	return strings.SplitN(s, by, n+1)
}

func (m *Machine) words(s string, n int) []string {
	var parts []string
	for s = strings.TrimLeftFunc(s, IsSpace); s != ""; s = strings.TrimLeftFunc(s, IsSpace) {
		m.Grow(16)
		end := strings.IndexFunc(s, IsSpace)
		if n >= 0 && len(parts) == n {
			return append(parts, s)
		}
		if end < 0 {
			end = len(s)
		}
		parts, s = append(parts, s[:end]), s[end:]
	}
	return parts
}

// RSplit implements str.rsplit.
func (m *Machine) RSplit(s string, sep Value, n int) []string {
	if n < 0 {
		return m.Split(s, sep, -1)
	}
	m.Scan(len(s))
	var back []string
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
		m.Grow(16)
		if at < 0 || len(back) == n {
			back = append(back, s)
			break
		}
		back, s = append(back, s[at+size:]), s[:at]
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	return back
}

// Lines implements str.splitlines.
func (m *Machine) Lines(s string, keep bool) []string {
	m.Scan(len(s))
	var lines []string
	for s != "" {
		m.Grow(16)
		at := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if at < 0 {
			return append(lines, s)
		}
		end := at + RuneLen(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			end = at + 2
		}
		if keep {
			at = end
		}
		lines, s = append(lines, s[:at]), s[end:]
	}
	return lines
}

// Pad pads s to width characters. share is the part of the padding on the left: 0 none, 1
// all, 2 half as in str.center.
func (m *Machine) Pad(s string, width int, fill string, share int) string {
	gap := width - Runes(s)
	if gap <= 0 {
		return s
	}
	m.Grow(len(s))
	m.Times(len(fill), gap)
	left := 0
	switch share {
	case 1:
		left = gap
	case 2:
		left = gap/2 + gap&width&1
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
	m.Times(len(to), count)
	m.Grow(len(s))
	return strings.Replace(s, from, to, n)
}

// ExpandTabs implements str.expandtabs.
func (m *Machine) ExpandTabs(s string, size int) string {
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				m.Times(1, n)
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
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
	inside, any := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inside {
				return false
			}
			inside, any = true, true
		case unicode.IsLower(r):
			if !inside {
				return false
			}
		default:
			inside = false
		}
	}
	return any
}

// IsCase implements str.islower and str.isupper.
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

// asciiDigits replaces decimal digits of other scripts.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || !unicode.Is(unicode.Nd, r) {
			return r
		}
		n := rune(0) // Unicode has a script's ten digits in a row
		for unicode.Is(unicode.Nd, r-1) && n < 9 {
			r, n = r-1, n+1
		}
		return '0' + n
	}, s)
}
