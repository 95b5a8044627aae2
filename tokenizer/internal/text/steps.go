package text

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/easyrl/easyrl/tokenizer/internal/budget"
	"github.com/easyrl/easyrl/tokenizer/internal/ucd"
)

// Step changes text. Normalizers apply steps to the input, and decoders to pieces.
type Step func(b *budget.Budget, text string) string

// Steps is a list of steps, applied in order.
type Steps []Step

// Apply applies all steps. It stops when the budget is spent.
func (s Steps) Apply(b *budget.Budget, text string) string {
	for _, step := range s {
		if text = step(b, text); !b.Holds(len(text)) {
			return text
		}
	}
	return text
}

// Form returns a step that normalizes text to a Unicode form.
func Form(form norm.Form) Step {
	return newNormalizer(form).apply
}

// Prepend returns a step that puts prefix before non-empty text.
func Prepend(prefix string) Step {
	return func(_ *budget.Budget, text string) string {
		if text == "" {
			return ""
		}
		return prefix + text
	}
}

// Replace returns a step that replaces the ranges that find returns. A range is a start and
// an end, in bytes; ranges ascend and do not overlap.
func Replace(find func(b *budget.Budget, text string) [][2]int, with string) Step {
	return func(b *budget.Budget, text string) string {
		found := find(b, text)
		if len(found) == 0 || !b.Holds(len(text)+len(found)*len(with)) {
			return text
		}
		var out strings.Builder
		out.Grow(len(text) + len(found)*len(with))
		done := 0
		for _, m := range found {
			out.WriteString(text[done:m[0]])
			out.WriteString(with)
			done = m[1]
		}
		out.WriteString(text[done:])
		return out.String()
	}
}

// Strip returns a step that removes white space from the ends.
func Strip(left, right bool) Step {
	space := ucd.Space().Has
	return func(_ *budget.Budget, text string) string {
		if left {
			text = strings.TrimLeftFunc(text, space)
		}
		if right {
			text = strings.TrimRightFunc(text, space)
		}
		return text
	}
}

// StripAccents returns a step that removes combining marks. They are separate characters
// only in decomposed text.
func StripAccents() Step {
	accents := ucd.Accents()
	return func(_ *budget.Budget, text string) string {
		return mapRunes(text, func(b *strings.Builder, c rune) {
			if !accents.Has(c) {
				b.WriteRune(c)
			}
		})
	}
}

// Lowercase returns a step that converts each character to lower case
// independently.
func Lowercase() Step {
	lower := ucd.Lowercase()
	return func(_ *budget.Budget, text string) string {
		return mapRunes(text, func(b *strings.Builder, c rune) {
			if c == 'İ' { // the only character that becomes two
				b.WriteString("i\u0307")
			} else if l, ok := lower[c]; ok {
				b.WriteRune(l)
			} else {
				b.WriteRune(c)
			}
		})
	}
}

// mapRunes returns what each writes for the characters of text. It keeps bytes that are not
// UTF-8.
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

// Squeeze removes spaces from the ends and collapses runs of spaces.
func Squeeze(_ *budget.Budget, text string) string {
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
