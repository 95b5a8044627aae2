// Package plain makes text from servers and models harmless on a terminal, where control
// characters can move the cursor, set the title or the clipboard and hide what is printed.
package plain

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces control characters other than line breaks and tabs, overrides of the
// writing direction, and bytes that are not UTF-8 by escapes as in Go, such as \x1b.
func Text(s string) string {
	if strings.IndexFunc(s, acts) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case acts(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// JSON replaces the same characters in a JSON document that encoding/json wrote. Its
// meaning stays the same.
func JSON(doc []byte) []byte {
	if bytes.IndexFunc(doc, acts) < 0 {
		return doc
	}
	var b bytes.Buffer
	for _, r := range string(doc) {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// JSONWriter applies JSON to each document, which must be written by one call, as by
// json.Encoder.
type JSONWriter struct{ W io.Writer }

// Write implements io.Writer.
func (w JSONWriter) Write(doc []byte) (int, error) {
	if _, err := w.W.Write(JSON(doc)); err != nil {
		return 0, err
	}
	return len(doc), nil
}

// acts reports whether a terminal obeys r. Marks of the writing direction, which texts in
// Arabic and Hebrew need, do not reorder other text as overrides do.
func acts(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
