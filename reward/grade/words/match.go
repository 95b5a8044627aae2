// Package words recognizes what words beside a value say: numbers, choices, denials, doubts and
// comparisons.
package words

import (
	"slices"
	"strings"
	"unicode"

	"github.com/easyrl/easyrl/reward/grade/expr"
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

// Split returns the longest runs of letters and of the signs in inside that s has.
func Split(s, inside string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !strings.ContainsRune(inside, r) })
}

// HasDigit reports whether s has an ASCII digit.
func HasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// HasLetter reports whether s has a letter of any script.
func HasLetter(s string) bool { return strings.IndexFunc(s, unicode.IsLetter) >= 0 }

// First returns the first word of s, or "".
func First(s string) string {
	if f := strings.Fields(s); len(f) > 0 {
		return f[0]
	}
	return ""
}

// Prose reports whether s has two consecutive words outside LaTeX commands.
func Prose(s string) bool {
	run, words := 0, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			for expr.LetterAt(s, i+1) {
				i++
			}
			if strings.HasPrefix(s[i+1:], "{") { // skip words in \text{}
				if end := strings.IndexByte(s[i+1:], '}'); end > 0 {
					i += end
				}
			}
			run, words = 0, 0
		case expr.LetterAt(s, i):
			if run++; run == 2 {
				words++
			}
		case s[i] == ' ':
			run = 0
		default:
			run, words = 0, 0
		}
		if words >= 2 {
			return true
		}
	}
	return false
}
