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
	write notice.Printer
	wake  chan struct{} // holds a token if lines are pending; closed by Close
	wrote sync.WaitGroup

	mu      sync.Mutex
	lines   []line // pending
	dropped int    // lines dropped from the queue
	closed  bool
}

// NewNotes returns Notes that pass lines to write, one call at a time, until Close.
func NewNotes(write notice.Printer) *Notes {
	n := &Notes{write: write, wake: make(chan struct{}, 1)}
	n.wrote.Go(func() {
		for range n.wake {
			n.flush()
		}
		n.flush()
	})
	return n
}

// line is a message to write.
type line struct {
	kind notice.Kind
	text string
}

// Say queues a message. After Close it does nothing.
func (n *Notes) Say(kind notice.Kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if len(n.lines) >= mostNotes {
		n.lines = n.lines[1:]
		n.dropped++
	}
	n.lines = append(n.lines, line{kind, fmt.Sprintf(format, args...)})
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *Notes) flush() {
	n.mu.Lock()
	lines, dropped := n.lines, n.dropped
	n.lines, n.dropped = nil, 0
	n.mu.Unlock()
	if dropped > 0 {
		n.write(notice.Warning, "%d lines dropped", dropped)
	}
	for _, line := range lines {
		n.write(line.kind, "%s", line.text)
	}
}

// Close writes the pending lines and waits for them.
func (n *Notes) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.wake)
	}
	n.mu.Unlock()
	n.wrote.Wait()
}
