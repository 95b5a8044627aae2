package transport

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// window is the number of bytes that an exchange must move within the time limit.
const window = 64 << 10

// progress expires when an exchange moves less than a window of bytes within the time
// limit.
type progress struct {
	timer *time.Timer
	every time.Duration
	moved atomic.Int64 // bytes since the timer was set
	runs  atomic.Bool  // the timer is set
}

// newProgress returns a stopped progress that allows every per window. It calls expired
// when the time is up.
func newProgress(every time.Duration, expired func()) *progress {
	p := &progress{every: every, timer: time.AfterFunc(time.Hour, expired)}
	p.timer.Stop()
	return p
}

// start begins a window.
func (p *progress) start() {
	p.moved.Store(0)
	p.runs.Store(true)
	p.timer.Reset(p.every)
}

// stop stops the timer.
func (p *progress) stop() {
	p.runs.Store(false)
	p.timer.Stop()
}

// progressReader reports to a progress what is read.
type progressReader struct {
	from io.Reader
	to   *progress
	lazy bool // begin a window with the first byte after stop
}

// Read implements io.Reader.
func (m *progressReader) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	switch {
	case err != nil:
		m.to.stop()
	case m.lazy && n > 0 && !m.to.runs.Load():
		m.to.start()
	case m.to.moved.Add(int64(n)) >= window:
		m.to.start()
	}
	return n, err
}

// Revocable is a reader that can be revoked. A cancelled HTTP call may still read its body
// after it returns.
type Revocable struct {
	mu   sync.Mutex
	From io.Reader // nil once revoked; set before the first Read
}

// Read implements io.Reader.
func (r *Revocable) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.From == nil {
		return 0, io.ErrClosedPipe
	}
	return r.From.Read(p)
}

// Revoke ends the reader. No Read of From runs once Revoke has returned.
func (r *Revocable) Revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.From = nil
}
