package run

import (
	"fmt"
	"io"
	"sync"

	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/secret"
	"github.com/easyrl/easyrl/report"
)

// notes prints messages for users, above the progress if it is shown. It is safe for
// concurrent use.
type notes struct {
	mu      sync.Mutex // guards all fields, and log while console is nil
	log     io.Writer
	console *report.Console
	said    []string // warnings printed before show, with secrets hidden
}

// warn prints a warning.
func (n *notes) warn(format string, args ...any) { n.say(notice.Warning, format, args...) }

// note prints a message about progress.
func (n *notes) note(format string, args ...any) { n.say(notice.Progress, format, args...) }

// say prints a message.
func (n *notes) say(kind notice.Kind, format string, args ...any) {
	n.mu.Lock()
	console := n.console
	if console == nil {
		notice.Print(n.log, kind, format, args...)
		if kind == notice.Warning {
			n.said = append(n.said, secret.Hide(fmt.Sprintf(format, args...)))
		}
	}
	n.mu.Unlock()
	if console != nil {
		console.Note(kind, format, args...)
	}
}

// show prints further messages above the progress on console.
func (n *notes) show(console *report.Console) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.console = console
}
