package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Step changes text before it is cut into words.
type Step func(text string) string

// Steps are taken one after the other.
type Steps []Step

// Apply takes all steps.
func (s Steps) Apply(text string) string {
	for _, step := range s {
		text = step(text)
	}
	return text
}

// Form brings text into a Unicode form.
func Form(form norm.Form) Step {
	return newNormalizer(form).apply
}

// Prepend puts prefix before text that is not empty.
func Prepend(prefix string) Step {
	return func(text string) string {
		if text == "" {
			return ""
		}
		return prefix + text
	}
}

// Replace puts with in the place of what find returns, each its start and its end,
// ascending and not overlapping.
func Replace(find func(text string) [][2]int, with string) Step {
	return func(text string) string {
		found := find(text)
		if len(found) == 0 {
			return text
		}
		var b strings.Builder
		b.Grow(len(text) + len(found)*len(with))
		done := 0
		for _, m := range found {
			b.WriteString(text[done:m[0]])
			b.WriteString(with)
			done = m[1]
		}
		b.WriteString(text[done:])
		return b.String()
	}
}

// Strip takes white space off the ends.
func Strip(left, right bool) Step {
	return func(text string) string {
		if left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text
	}
}

// StripAccents takes combining marks away.
func StripAccents(text string) string {
	return mapRunes(text, func(b *strings.Builder, c rune) {
		if !unicode.Is(unicode.M, c) {
			b.WriteRune(c)
		}
	})
}

// Lowercase makes each character lower case by itself.
func Lowercase(text string) string {
	return mapRunes(text, func(b *strings.Builder, c rune) {
		if c == 'İ' { // the only one that becomes two
			b.WriteString("i\u0307")
			return
		}
		b.WriteRune(unicode.ToLower(c))
	})
}

// mapRunes calls each for the characters; bytes that are not UTF-8 stay.
func mapRunes(text string, each func(*strings.Builder, rune)) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		if c == utf8.RuneError && n == 1 {
			b.WriteByte(text[i])
		} else {
			each(&b, c)
		}
		i += n
	}
	return b.String()
}

// Squeeze takes spaces off the ends and makes one of several in a row.
func Squeeze(text string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(text, " ") {
		if word == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}
