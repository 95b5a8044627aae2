// Package plain makes text from servers and models harmless on terminals and pages. There, control
// characters can move the cursor or set the clipboard, and others can reorder or hide text.
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

// Text replaces some characters with Go's escapes, such as \x1b: control characters other than
// line breaks and tabs, characters that set the writing direction or are invisible, and bytes
// that are not UTF-8. It keeps joiners between characters beyond ASCII, as in emoji.
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

// JSON replaces the same characters with JSON's escapes in a document that encoding/json wrote.
// The document keeps its meaning.
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

// replace returns s with what escape appends in place of each suspect character, and with \x
// escapes in place of bytes that are not UTF-8.
func replace(s string, escape func([]byte, rune) []byte) (b []byte) {
	before := rune(0)
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		after, _ := utf8.DecodeRuneInString(s[i+n:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case isJoiner(r) && mayJoin(before) && mayJoin(after):
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

// JSONWriter applies JSON to what it writes to W. Each Write must hold a complete document, as
// json.Encoder's do.
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
	format := unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	return r != '\n' && r != '\t' && unicode.IsControl(r) || format || r == '\u2028' || r == '\u2029'
}

// isJoiner reports whether r is a joiner or non-joiner.
func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// mayJoin reports whether a joiner next to r may be legitimate.
func mayJoin(r rune) bool {
	return r > unicode.MaxASCII && r != utf8.RuneError && !suspect(r) && !unicode.IsSpace(r)
}
