// Package wire provides connections that notice when a client disconnects, and request bodies
// that end with an error unless they are complete.
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
	// writeTimeout limits how long one write may wait for a client that reads nothing.
	writeTimeout = 30 * time.Second
	// lingerTime and lingerBytes limit how much Close reads after Linger.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 20
)

// ErrGone ends a request whose client has disconnected.
var ErrGone = errors.New("client closed the connection")

// Listener tracks its open connections, so that CloseConns can close them, and the busy ones among them.
type Listener struct {
	net.Listener
	open sync.WaitGroup // counts conns

	mu     sync.Mutex
	closed bool           // CloseConns was called
	conns  map[*Conn]bool // open connections
	busy   int            // number of busy connections; see Conn.Busy
	quiet  chan struct{}  // closed when busy becomes 0; nil unless WhenQuiet has waiters
}

// NewListener returns a Listener that accepts from inner and owns it.
func NewListener(inner net.Listener) *Listener {
	return &Listener{Listener: accept.New(inner), conns: map[*Conn]bool{}}
}

// Accept returns the next connection, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: inner, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
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

// CloseConns closes all connections, refuses later ones, and waits until the connections' owners have
// called Close.
func (l *Listener) CloseConns() {
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Conn.Close() // the server's next read fails, and it closes c
	}
	l.mu.Unlock()
	l.open.Wait()
}

// Conn is a connection that reports when its client disconnects during a request.
//
// To notice that, Watch reads from the connection while the server computes the answer. If it reads
// the first byte of the client's next request, it keeps the byte for the next Read.
type Conn struct {
	net.Conn
	listener *Listener
	closed   atomic.Bool
	linger   atomic.Bool // see Linger
	ended    bool        // see Ended; only the reader uses it
	busy     bool        // see Busy; guarded by listener.mu

	// The goroutine of Watch sets these fields. The reader uses them after stop, which waits for
	// the goroutine, so they need no lock.
	watched    [1]byte // the byte that Watch read, if hasWatched is set
	hasWatched bool
	watchErr   error // why Watch could not read
}

// Linger makes Close read for a moment what the client is still sending. If Close left it unread,
// the kernel would reset the connection and the client could lose an answer in flight.
func (c *Conn) Linger() { c.linger.Store(true) }

// Busy sets whether c has a request whose answer has not been sent completely.
func (c *Conn) Busy(busy bool) {
	l := c.listener
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

// Read implements net.Conn. It first returns what Watch read.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case len(p) > 0 && c.hasWatched:
		c.hasWatched = false
		p[0] = c.watched[0]
		return 1, nil
	case c.watchErr != nil:
		return 0, c.watchErr
	}
	n, err := c.Conn.Read(p)
	c.ended = c.ended || err == io.EOF //nolint:errorlint // connections do not wrap it
	return n, err
}

// Ended reports whether Read has reached the end of what the client sends. A body that ends there is
// truncated: a server reads a complete body by its length or chunks, and stops before that end.
func (c *Conn) Ended() bool { return c.ended }

// Write implements net.Conn. It fails if the client does not read p within writeTimeout.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn; see Linger. Only the first call has an effect.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.linger.Load() && tcp.CloseWrite() == nil &&
		tcp.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, tcp, lingerBytes)
	}
	err := c.Conn.Close()
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	c.listener.open.Done()
	return err
}

// Watch returns a context that ends with ErrGone when the client disconnects. The connection must
// not be read until stop has returned. Call stop exactly once.
func (c *Conn) Watch(ctx context.Context) (watched context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.hasWatched || c.watchErr != nil || c.Conn.SetReadDeadline(time.Time{}) != nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err := c.Conn.Read(c.watched[:])
		switch {
		case n == 1:
			c.hasWatched = true // the first byte of the client's next request
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.watchErr = err
			cancel(ErrGone)
		}
	}()
	return ctx, func() {
		// A deadline in the past ends the read. If setting it fails, the read has failed too.
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.Conn.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}
