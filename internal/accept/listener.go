// Package accept provides a listener that survives a shortage of file
// descriptors.
package accept

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	shortestPause = 5 * time.Millisecond
	longestPause  = time.Second
)

// Listener retries Accept when the process or the system runs out of resources
// for connections. A plain listener would fail and end its server.
type Listener struct {
	net.Listener
	once   sync.Once
	closed chan struct{} // closed by Close
}

// New returns a Listener that wraps and owns inner.
func New(inner net.Listener) *Listener {
	return &Listener{Listener: inner, closed: make(chan struct{})}
}

// Accept returns the next connection. It retries temporary failures with growing
// pauses until Close is called; then it returns an error.
func (l *Listener) Accept() (net.Conn, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		c, err := l.Listener.Accept()
		if err == nil || !isTemporary(err) {
			return c, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.closed:
			t.Stop()
			return nil, net.ErrClosed
		}
	}
}

// isTemporary reports whether a later Accept may succeed: err is a shortage of resources or a
// connection that the client aborted.
func isTemporary(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Close implements net.Listener and unblocks Accept. It may be called several times.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
