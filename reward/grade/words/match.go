package words

import (
	"slices"
	"strings"
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
