// Package wire is what a server needs of its connections: to see when a client
// goes, and to trust no body before all of it has come.
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
	// writeTimeout is how long a client may take no bytes.
	writeTimeout = 30 * time.Second
	// lingerTime and lingerBytes bound what is read of a refused body, so that
	// the answer is not lost to a reset.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 20
)

// ErrGone is the cause of a request's end when its client has gone.
var ErrGone = errors.New("the client closed the connection")

// Listener knows its open connections, so that it can end them.
type Listener struct {
	net.Listener
	open sync.WaitGroup

	mu    sync.Mutex
	ended bool
	conns map[*Conn]bool
	busy  int           // connections that are
	quiet chan struct{} // closed when none is; nil where nobody waits for it
}

// NewListener makes inner a Listener, which owns it.
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

// WhenQuiet is closed when no connection is busy.
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

// End closes all connections and waits until they are.
func (l *Listener) End() {
	l.mu.Lock()
	l.ended = true
	for c := range l.conns {
		_ = c.Conn.Close() // whoever serves it sees that and closes c
	}
	l.mu.Unlock()
	l.open.Wait()
}

// Conn is a connection that can tell when its client has gone while a request
// is served.
type Conn struct {
	net.Conn
	from   *Listener
	closed atomic.Bool
	linger atomic.Bool // see Linger
	ended  bool        // see Ended; belongs to whoever reads
	busy   bool        // see Busy; of the listener's lock

	// What the watch has read, for the next Read. A watch has ended before Read
	// is called.
	one [1]byte
	has bool
	err error
}

// Linger says that the client may still be sending what nobody will read: Close
// hears it out for a moment, so that the answer is not lost to a reset.
func (c *Conn) Linger() { c.linger.Store(true) }

// Busy says whether an answer is owed on c.
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

// Read is net.Conn's.
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

// Ended says whether Read has come to the end of what the client sends. A body
// that ends there was cut off: the end of a whole one is known without it.
func (c *Conn) Ended() bool { return c.ended }

// Write is net.Conn's, and fails where the client takes nothing for too long.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close is net.Conn's. A client that is still sending is heard out for a
// moment.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.linger.Load() && tcp.CloseWrite() == nil && tcp.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, struct{ io.Reader }{tcp}, lingerBytes)
	}
	err := c.Conn.Close()
	c.from.mu.Lock()
	delete(c.from.conns, c)
	c.from.mu.Unlock()
	c.from.open.Done()
	return err
}

// Watch ends the returned context with ErrGone when the client goes. Nobody may
// read the connection until stop has returned.
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
			c.has = true // the client's next request is none of ours
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.err = err
			cancel(ErrGone)
		}
	}()
	return ctx, func() {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // where it fails, so has the read
		<-done
		_ = c.Conn.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}
