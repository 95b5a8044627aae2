// Package notice prints messages for people. An error, a warning or a hint begins with its
// kind; progress has no prefix.
package notice

import (
	"fmt"
	"io"
	"strings"

	"github.com/easyrl/easyrl/internal/plain"
	"github.com/easyrl/easyrl/internal/secret"
)

// Kind is the prefix of a message.
type Kind string

// The kinds of messages.
const (
	Error    Kind = "error"
	Warning  Kind = "warning"
	Hint     Kind = "hint"
	Progress Kind = ""
)

// A Printer prints a message of a kind.
type Printer func(kind Kind, format string, args ...any)

// Text prefixes each line of message with kind. It leaves alone blank lines, indented lines, which
// continue the line above, and lines that have a prefix, such as "hint: …".
func Text(kind Kind, message string) string {
	if kind == Progress {
		return message
	}
	var b strings.Builder
	for line := range strings.Lines(message) {
		if !indented(line) && !prefixed(line) {
			b.WriteString(string(kind) + ": ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// indented reports whether a line is blank or continues the line above.
func indented(line string) bool {
	return strings.TrimSpace(line) == "" || line[0] == ' ' || line[0] == '\t'
}

func prefixed(line string) bool {
	for _, kind := range []Kind{Error, Warning, Hint} {
		if strings.HasPrefix(line, string(kind)+": ") {
			return true
		}
	}
	return false
}

// Print writes a message and a line break to w. It escapes control characters, masks secrets and
// ignores write errors.
func Print(w io.Writer, kind Kind, format string, args ...any) {
	text := plain.Text(strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
	_, _ = fmt.Fprintln(w, Text(kind, secret.Hide(text)))
}
