package words

import (
	"slices"
	"strings"
	"unicode"
)

// Contains reports whether s contains one of the texts.
func Contains(s string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(s, text) })
}

// Begins reports whether s begins with one of the texts.
func Begins(s string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(s, text) })
}

// Ends reports whether s ends with one of the texts.
func Ends(s string, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasSuffix(s, text) })
}

// OneOf reports whether word is one of the others.
func OneOf(word string, others ...string) bool { return slices.Contains(others, word) }

// CutLast slices s around the last sep.
func CutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Split returns the runs of letters in s, and of the signs in inside.
func Split(s, inside string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !strings.ContainsRune(inside, r) })
}

// HasDigit reports whether s has an ASCII digit.
func HasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// HasLetter reports whether s has a letter of any script.
func HasLetter(s string) bool { return strings.IndexFunc(s, unicode.IsLetter) >= 0 }
