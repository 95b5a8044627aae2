// Package flow watches and cuts off what moves over a connection.
package flow

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Window is so many bytes.
const Window = 64 << 10

// Progress ends an exchange that does not move a window of bytes in the time
// that it has for it, or as little as it has left.
type Progress struct {
	timer *time.Timer
	every time.Duration
	moved atomic.Int64 // since the timer was set
}

// NewProgress gives an exchange time for each window once it has started; expired
// is called where that is up.
func NewProgress(every time.Duration, expired func()) *Progress {
	p := &Progress{every: every, timer: time.AfterFunc(time.Hour, expired)}
	p.timer.Stop()
	return p
}

// Start begins a window.
func (p *Progress) Start() {
	p.moved.Store(0)
	p.timer.Reset(p.every)
}

// Stop ends all.
func (p *Progress) Stop() { p.timer.Stop() }

// Reader tells a progress what is read.
type Reader struct {
	From io.Reader
	To   *Progress
}

// Read implements io.Reader.
func (m *Reader) Read(b []byte) (int, error) {
	n, err := m.From.Read(b)
	switch {
	case err != nil:
		m.To.Stop()
	case m.To.moved.Add(int64(n)) >= Window:
		m.To.Start()
	}
	return n, err
}

// Lent is a reader that nobody reads once it is given back: a call that was broken
// off may still be sending its body when it returns.
type Lent struct {
	mu   sync.Mutex
	From io.Reader // nil when it was given back; set before the first Read
}

// Read implements io.Reader.
func (l *Lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.From == nil {
		return 0, io.ErrClosedPipe
	}
	return l.From.Read(p)
}

// Back is when it is given back.
func (l *Lent) Back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.From = nil
}
