package report

import (
	"fmt"
	"sync"

	"github.com/easyrl/easyrl/internal/notice"
)

// mostNotes bounds the queue of unwritten lines; beyond it the oldest are dropped.
const mostNotes = 1000

// Notes writes lines from its own goroutine, so that callers never wait, even if a
// terminal blocks. It is safe for concurrent use.
type Notes struct {
	lines chan line // unwritten; closed by Close
	wrote sync.WaitGroup

	mu      sync.Mutex // held to send to lines
	dropped int        // lines dropped since the last one written
	closed  bool
}

// line is a message to write.
type line struct {
	kind notice.Kind
	text string
}

// NewNotes returns Notes that pass lines to write, one call at a time, until Close.
func NewNotes(write notice.Printer) *Notes {
	n := &Notes{lines: make(chan line, mostNotes)}
	n.wrote.Go(func() {
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

// Say queues a message. After Close it does nothing.
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
		default: // written just now
		}
	}
	n.lines <- line{kind, fmt.Sprintf(format, args...)} // does not block, since only Say sends
}

// Close writes the pending lines and waits for them.
func (n *Notes) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.lines)
	}
	n.mu.Unlock()
	n.wrote.Wait()
}
