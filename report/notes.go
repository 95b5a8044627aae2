package report

import (
	"fmt"
	"sync"
)

// mostNotes is how many lines wait to be written before the oldest are dropped.
const mostNotes = 1000

// Notes are lines that a goroutine of their own writes: who says one does not
// wait, even where a terminal is stopped. It is safe for concurrent use.
type Notes struct {
	write func(format string, args ...any)
	wake  chan struct{} // holds a token where there is something to write; closed at the end
	wrote sync.WaitGroup

	mu      sync.Mutex
	lines   []string // to be written
	dropped int      // of them
	closed  bool
}

// NewNotes are notes that write writes, one call at a time, until Close.
func NewNotes(write func(format string, args ...any)) *Notes {
	n := &Notes{write: write, wake: make(chan struct{}, 1)}
	n.wrote.Go(func() {
		for range n.wake {
			n.flush()
		}
		n.flush()
	})
	return n
}

// Say has a line written. After Close it does nothing.
func (n *Notes) Say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if len(n.lines) >= mostNotes {
		n.lines = n.lines[1:]
		n.dropped++
	}
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
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
		n.write("%d lines are left out here", dropped)
	}
	for _, line := range lines {
		n.write("%s", line)
	}
}

// Close writes what is left.
func (n *Notes) Close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.wake)
	}
	n.mu.Unlock()
	n.wrote.Wait()
}
