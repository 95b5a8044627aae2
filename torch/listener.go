package torch

import (
	"bufio"
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/easyrl/easyrl/internal/peer"
	"github.com/easyrl/easyrl/torch/wire"
)

const (
	helloTime  = 10 * time.Second // how long a connection may take to send its hello
	acceptTime = 30 * time.Second // how long a connection waits in arrivals
	maxWaiting = 256              // connections without a hello, and connections that wait in arrivals
	maxHello   = 64 << 10         // bytes of a hello
)

// listener accepts connections and sends those with a well-formed hello to arrivals.
type listener struct {
	net.Listener
	arrivals chan arrival       // unbuffered
	places   chan struct{}      // holds a token for each connection that waits to be received from arrivals
	ctx      context.Context    // ends with close
	cancel   context.CancelFunc // ends ctx
	running  conc.WaitGroup     // all goroutines
}

// arrival is a connection that has sent its hello.
type arrival struct {
	conn  net.Conn
	r     *bufio.Reader
	hello wire.Hello
}

// listen accepts connections until close.
func listen(ln net.Listener) *listener {
	l := &listener{Listener: ln, arrivals: make(chan arrival), places: make(chan struct{}, maxWaiting)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.accept)
	return l
}

func (l *listener) close() {
	l.cancel()
	_ = l.Close() // ends accept
	l.running.Wait()
}

// pending is a connection that may not have sent its hello yet.
type pending struct {
	net.Conn
	done atomic.Bool // set once: by receive after the hello, or by accept when it closes the connection
}

// accept accepts connections until close. If too many have not sent a hello, it closes the oldest, so that
// silent connections cannot keep a rank out.
func (l *listener) accept() {
	silent := make(chan *pending, maxWaiting)
	for {
		conn, err := l.Accept()
		if err != nil {
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond): // a temporary failure, such as too many open files
				continue
			}
		}
		if len(silent) == cap(silent) { // silent may include connections that have sent a hello
			if oldest := <-silent; oldest.done.CompareAndSwap(false, true) {
				_ = oldest.Close()
			}
		}
		p := &pending{Conn: conn}
		silent <- p
		l.running.Go(func() { l.receive(p) })
	}
}

// receive reads the hello of a connection and waits until the arrival is taken.
func (l *listener) receive(conn *pending) {
	stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	defer stop()
	a := arrival{conn: conn.Conn, r: bufio.NewReaderSize(conn, 64<<10)}
	_ = conn.SetReadDeadline(time.Now().Add(helloTime)) // if it fails, so does the read
	frame, err := wire.Read(io.LimitReader(a.r, maxHello), wire.AtMost(0))
	if err == nil {
		err = frame.Decode(&a.hello)
	}
	if !conn.done.CompareAndSwap(false, true) { // accept has closed it
		return
	}
	if err != nil {
		a.refuse(peer.Fault(err).Error())
		return
	}
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	default:
		a.refuse("too many connections wait")
		return
	}
	timeout := time.NewTimer(acceptTime)
	defer timeout.Stop()
	select {
	case l.arrivals <- a:
	case <-timeout.C:
		a.refuse("all ranks are connected")
	case <-l.ctx.Done():
		_ = conn.Close()
	}
}

// refuse sends the reason and closes the connection.
func (a *arrival) refuse(why string) {
	_ = a.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = wire.Send(a.conn, wire.Refused{Error: why}, wire.Body{}) // the rank may be gone
	_ = a.conn.Close()
}

// name returns a readable name of a rank, such as "rank 1 on host".
func (a *arrival) name() string {
	host := a.hello.Host
	if len(host) > 60 || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != "" {
		host = wire.Quote(host)
	}
	return fmt.Sprintf("rank %d on %s", a.hello.Rank, host)
}

// check returns why a connection is not from a rank of this session, or "" if it is.
func (a *arrival) check(token string, world int) string {
	switch {
	case subtle.ConstantTimeCompare([]byte(a.hello.Token), []byte(token)) != 1:
		return "the token is wrong"
	case a.hello.World != world:
		return fmt.Sprintf("world is %d ranks, expected %d", a.hello.World, world)
	case a.hello.Rank < 0 || a.hello.Rank >= world:
		return fmt.Sprintf("rank is %d, expected 0 to %d", a.hello.Rank, world-1)
	}
	return ""
}
