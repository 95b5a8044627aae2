// Package wire provides connections that notice when a client disconnects, and bodies
// that are complete or an error.
package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/internal/accept"
)

const (
	// writeTimeout limits how long a client may accept no bytes.
	writeTimeout = 30 * time.Second
	// lingerTime and lingerBytes bound how much of a refused body is read, so that a
	// reset does not destroy the answer.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 20
)

// ErrGone ends a request whose client has disconnected.
var ErrGone = errors.New("client closed the connection")

// Listener tracks its open connections so that End can close them.
type Listener struct {
	net.Listener
	open sync.WaitGroup

	mu    sync.Mutex
	ended bool
	conns map[*Conn]bool
	busy  int           // number of busy connections
	quiet chan struct{} // closed when none is busy; nil without waiters
}

// NewListener returns a Listener that owns inner.
func NewListener(inner net.Listener) *Listener {
	return &Listener{Listener: accept.New(inner), conns: map[*Conn]bool{}}
}

// Accept returns the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, from: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, errors.Join(net.ErrClosed, inner.Close())
	}
	l.conns[c] = true
	l.open.Add(1)
	return c, nil
}

// WhenQuiet returns a channel that is closed when no connection is busy.
func (l *Listener) WhenQuiet() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	quiet := l.quiet
	if quiet == nil {
		quiet = make(chan struct{})
		if l.busy == 0 {
			close(quiet)
		} else {
			l.quiet = quiet
		}
	}
	return quiet
}

// End closes all connections and waits until they are closed.
func (l *Listener) End() {
	l.mu.Lock()
	l.ended = true
	for c := range l.conns {
		_ = c.Conn.Close() // its server notices and closes c
	}
	l.mu.Unlock()
	l.open.Wait()
}

// Conn is a connection that reports when its client disconnects during a request.
type Conn struct {
	net.Conn
	from   *Listener
	closed atomic.Bool
	linger atomic.Bool // see Linger
	ended  bool        // see Ended; owned by the reader
	busy   bool        // see Busy; guarded by the listener's lock

	// Result of the watch for the next Read. A watch ends before Read is called.
	one [1]byte
	has bool
	err error
}

// Linger makes Close read for a moment what the client is still sending, so that a reset
// does not destroy the answer.
func (c *Conn) Linger() { c.linger.Store(true) }

// Busy sets whether c still owes an answer.
func (c *Conn) Busy(busy bool) {
	l := c.from
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case busy == c.busy:
		return
	case busy:
		l.busy++
	default:
		l.busy--
	}
	c.busy = busy
	if l.busy == 0 && l.quiet != nil {
		close(l.quiet)
		l.quiet = nil
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case len(p) > 0 && c.has:
		c.has = false
		p[0] = c.one[0]
		return 1, nil
	case c.err != nil:
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF //nolint:errorlint // connections do not wrap it
	return n, err
}

// Ended reports whether Read has reached the end of what the client sends. A body that
// ends there is truncated, because the end of a complete body is known without it.
func (c *Conn) Ended() bool { return c.ended }

// Write implements net.Conn. It fails if the client accepts nothing for too long.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn. After Linger, it reads for a moment what the client is still
// sending.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.linger.Load() && tcp.CloseWrite() == nil &&
		tcp.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, struct{ io.Reader }{tcp}, lingerBytes)
	}
	err := c.Conn.Close()
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	c.from.open.Done()
	return err
}

// Watch ends the returned context with ErrGone when the client disconnects. The
// connection must not be read until stop has returned.
func (c *Conn) Watch(ctx context.Context) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.has || c.err != nil || c.Conn.SetReadDeadline(time.Time{}) != nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err := c.Conn.Read(c.one[:])
		switch {
		case n == 1:
			c.has = true // the first byte of the client's next request
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.err = err
			cancel(ErrGone)
		}
	}()
	return ctx, func() {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // if it fails, the read has failed too
		<-done
		_ = c.Conn.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}
