// Package flow measures the progress of HTTP bodies and cuts off their readers.
package flow

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Window is the number of bytes that an exchange must move within the time limit.
const Window = 64 << 10

// Progress expires when an exchange moves less than a window of bytes within the time
// limit.
type Progress struct {
	timer *time.Timer
	every time.Duration
	moved atomic.Int64 // bytes since the timer was set
	runs  atomic.Bool  // the timer is set
}

// NewProgress returns a stopped Progress that allows every per window. It calls expired
// when the time is up.
func NewProgress(every time.Duration, expired func()) *Progress {
	p := &Progress{every: every, timer: time.AfterFunc(time.Hour, expired)}
	p.timer.Stop()
	return p
}

// Start begins a window.
func (p *Progress) Start() {
	p.moved.Store(0)
	p.runs.Store(true)
	p.timer.Reset(p.every)
}

// Stop stops the timer.
func (p *Progress) Stop() {
	p.runs.Store(false)
	p.timer.Stop()
}

// Reader reports to a Progress what is read.
type Reader struct {
	From io.Reader
	To   *Progress
	Lazy bool // begin a window with the first byte after Stop
}

// Read implements io.Reader.
func (m *Reader) Read(b []byte) (int, error) {
	n, err := m.From.Read(b)
	switch {
	case err != nil:
		m.To.Stop()
	case m.Lazy && n > 0 && !m.To.runs.Load():
		m.To.Start()
	case m.To.moved.Add(int64(n)) >= Window:
		m.To.Start()
	}
	return n, err
}

// Lent is a reader that can be revoked. A cancelled HTTP call may still read its body
// after it returns.
type Lent struct {
	mu   sync.Mutex
	From io.Reader // nil once revoked; set before the first Read
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

// Back revokes the reader. No Read of From runs once Back has returned.
func (l *Lent) Back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.From = nil
}
