package transport

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// window is the number of bytes that an exchange must move within the time limit.
const window = 64 << 10

// progress is a timer that expires when an exchange moves less than a window of bytes within the time
// limit. It starts again with each window. Its methods may be called concurrently.
type progress struct {
	timer *time.Timer
	every time.Duration // time limit of a window
	moved atomic.Int64  // bytes moved in the current window
	runs  atomic.Bool   // the timer runs
}

// newProgress returns a stopped progress with the time limit every. It calls expired, once, when the
// timer expires.
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

// progressReader counts the bytes read in a progress.
type progressReader struct {
	from     io.Reader
	progress *progress
	lazy     bool // if the progress is stopped, start it with the next byte
}

// Read implements io.Reader.
func (m *progressReader) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	switch {
	case err != nil:
		m.progress.stop()
	case m.lazy && n > 0 && !m.progress.runs.Load():
		m.progress.start()
	case m.progress.moved.Add(int64(n)) >= window:
		m.progress.start()
	}
	return n, err
}

// Revocable is a reader whose source can be taken away. It is for bodies of HTTP calls, because
// net/http may still read the body of a cancelled call after the call has returned.
type Revocable struct {
	mu   sync.Mutex
	From io.Reader // the source; set before the first Read, and nil after Revoke
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

// Revoke makes later reads fail. When it returns, no Read of From runs or will run.
func (r *Revocable) Revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.From = nil
}
