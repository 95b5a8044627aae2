// Package accept is a listener that outlives a shortage of open files.
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

// Listener waits where the process or the system has no room for one connection
// more, where a plain one fails and its server ends.
type Listener struct {
	net.Listener
	once sync.Once
	over chan struct{} // closed with the listener
}

// New makes inner a Listener, which owns it.
func New(inner net.Listener) *Listener {
	return &Listener{Listener: inner, over: make(chan struct{})}
}

// Accept returns the next connection.
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

// passes reports whether a failure to accept is none of the listener's.
func passes(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Close is net.Listener's: nothing is accepted any more.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.over) })
	return l.Listener.Close()
}
