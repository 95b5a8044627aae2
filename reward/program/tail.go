package program

import (
	"bytes"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxTail = 4 << 10  // bytes of standard error kept
	maxRead = 64 << 10 // bytes read at once: at least what a pipe holds

	// After readTime of reading, the reader pauses for readPause. A program that floods its standard error
	// then blocks, and costs this process at most a fifth of a core.
	readTime  = 250 * time.Microsecond
	readPause = time.Millisecond
)

// tail reads a program's standard error and keeps the end of it.
type tail struct {
	w       *os.File // the program writes to it
	closing atomic.Bool
	done    chan struct{} // closed when the reader has ended

	mu  sync.Mutex // guards end
	end []byte     // last maxTail bytes
}

// newTail starts to read. The caller closes the tail.
func newTail() (*tail, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	t := &tail{w: w, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.read(r)
		_ = r.Close() // close may be waiting for space
	}()
	return t, nil
}

// close stops the reader once it has read everything written before, and waits for it. Descendants of the program
// may keep their end open and continue to write, so the reader cannot wait for the end of the pipe.
func (t *tail) close() {
	t.closing.Store(true)
	for open := true; open; {
		_, _ = t.w.Write([]byte("\n")) // wakes the reader; fails if it is done
		select {
		case <-t.done:
			open = false
		case <-time.After(readPause): // the read that this woke began before closing was set, so another follows
		}
	}
	_ = t.w.Close()
}

// read keeps the end of r until r ends or the tail closes.
func (t *tail) read(r io.Reader) {
	chunk := make([]byte, maxRead)
	busy := time.Now()
	for {
		last := t.closing.Load()
		n, err := r.Read(chunk)
		t.add(chunk[:n])
		if err != nil || last {
			return
		}
		if time.Since(busy) >= readTime {
			time.Sleep(readPause)
			busy = time.Now()
		}
	}
}

// add appends b to end and drops all but the last maxTail bytes.
func (t *tail) add(b []byte) {
	b = b[max(0, len(b)-maxTail):]
	t.mu.Lock()
	defer t.mu.Unlock()
	excess := max(0, len(t.end)+len(b)-maxTail)
	t.end = append(t.end[:copy(t.end, t.end[excess:])], b...)
}

// lastLine returns the beginning of the last line.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.end)
	return OneLine(text[bytes.LastIndexByte(text, '\n')+1:])
}
