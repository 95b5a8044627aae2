package report

import (
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/internal/notice"
)

// maxNotes limits the queue of unwritten lines. If it is full, Say drops the oldest line.
const maxNotes = 1000

// Notes writes lines from its own goroutine, so that callers never wait, even if a
// terminal blocks. It is safe for concurrent use.
type Notes struct {
	lines  chan line      // unwritten lines; closed by Close
	writer sync.WaitGroup // the goroutine that writes

	mu      sync.Mutex // held while sending to or closing lines; guards the following
	dropped int        // number of lines dropped since the last one written
	closed  bool
}

// line is a message to write.
type line struct {
	kind notice.Kind
	text string
}

// NewNotes returns Notes that pass lines to write, one call at a time, until Close.
func NewNotes(write notice.Printer) *Notes {
	n := &Notes{lines: make(chan line, maxNotes)}
	n.writer.Go(func() {
		for l := range n.lines {
			n.mu.Lock()
			dropped := n.dropped
			n.dropped = 0
			n.mu.Unlock()
			if dropped > 0 {
				write(notice.Warning, "%d lines dropped", dropped)
			}
			write(l.kind, "%s", l.text)
		}
	})
	return n
}

// Say queues a message and never blocks. After Close it does nothing.
func (n *Notes) Say(kind notice.Kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if len(n.lines) == cap(n.lines) {
		select {
		case <-n.lines:
			n.dropped++
		default: // the writer has just taken it
		}
	}
	n.lines <- line{kind, fmt.Sprintf(format, args...)} // has room: only Say sends, and it holds mu
}

// Close waits until all queued lines are written.
func (n *Notes) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.lines)
	}
	n.mu.Unlock()
	n.writer.Wait()
}
