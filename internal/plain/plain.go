// Package plain makes text from servers and models harmless on terminals and pages, where
// control characters move the cursor or set the clipboard, and others reorder or hide text.
package plain

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text replaces control characters other than line breaks and tabs, characters that set
// the writing direction or are invisible, and bytes that are not UTF-8 by escapes as in
// Go, such as \x1b. It keeps joiners between characters beyond ASCII, as in emoji.
func Text(s string) string {
	if strings.IndexFunc(s, suspect) < 0 && utf8.ValidString(s) {
		return s
	}
	return string(replace(s, func(b []byte, r rune) []byte {
		quoted := strconv.AppendQuoteRuneToASCII(nil, r)
		return append(b, quoted[1:len(quoted)-1]...)
	}))
}

// Page applies Text to a finished HTML page or a part of one.
func Page(html []byte) []byte {
	return []byte(Text(string(html)))
}

// JSON replaces the same characters in a JSON document that encoding/json wrote. Its
// meaning stays the same.
func JSON(doc []byte) []byte {
	if bytes.IndexFunc(doc, suspect) < 0 {
		return doc
	}
	return replace(string(doc), func(b []byte, r rune) []byte {
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
		return b
	})
}

// replace returns s with escape's text for each character that acts.
func replace(s string, escape func([]byte, rune) []byte) (b []byte) {
	before := rune(0)
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		after, _ := utf8.DecodeRuneInString(s[i+n:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case joins(r) && joined(before) && joined(after):
			b = utf8.AppendRune(b, r)
		case suspect(r):
			b = escape(b, r)
		default:
			b = utf8.AppendRune(b, r)
		}
		before = r
	}
	return b
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

// suspect reports whether r controls a terminal, sets the writing direction or is
// invisible.
func suspect(r rune) bool {
	formats := unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	return r != '\n' && r != '\t' && unicode.IsControl(r) || formats || r == '\u2028' || r == '\u2029'
}

// joins reports whether r is a joiner or non-joiner.
func joins(r rune) bool { return r == '\u200c' || r == '\u200d' }

// joined reports whether joiners next to r may be legitimate.
func joined(r rune) bool {
	return r > unicode.MaxASCII && r != utf8.RuneError && !suspect(r) && !unicode.IsSpace(r)
}
