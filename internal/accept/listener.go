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
	once sync.Once
	over chan struct{} // closed by Close
}

// New returns a Listener that wraps and owns inner.
func New(inner net.Listener) *Listener {
	return &Listener{Listener: inner, over: make(chan struct{})}
}

// Accept returns the next connection. It retries temporary failures with growing
// pauses.
func (l *Listener) Accept() (net.Conn, error) {
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		c, err := l.Listener.Accept()
		if err == nil || !passes(err) {
			return c, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.over:
			t.Stop()
			return nil, net.ErrClosed
		}
	}
}

// passes reports whether err is temporary: a shortage of resources or a
// connection aborted by the client.
func passes(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Close implements net.Listener and unblocks Accept.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.over) })
	return l.Listener.Close()
}
