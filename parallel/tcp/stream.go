package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
	"github.com/easyrl/easyrl/parallel"
)

// headerSize is the number of bytes of a message's header: operation, count and length.
const headerSize = 16

// route identifies the connection that carries the messages from one rank to another on a channel.
type route struct {
	from, to int
	channel  string
}

// stream is one end of the connection of a route. The sender makes the connection at its first message.
// The call that holds the turn has exclusive use of conn, except for keepalives (see keepalive.go).
type stream struct {
	turn      chan struct{} // holds a token while a message is sent or received
	connected chan struct{} // receiver only: closed when conn may be used
	conn      *conn         // nil before the connection; set with World.mu held

	// Only a receiver's stream uses these, for World.checkStreams.
	reading atomic.Bool   // whether a call waits for a message
	frames  atomic.Uint32 // number of frames and calls so far; wraps
	awaited atomic.Uint32 // bytes of the frame of data that a call waits for; 0 while it waits for a header
}

// stream returns the stream of a route, and makes it at the first call. The caller holds mu.
func (w *World) stream(r route) *stream {
	s := w.streams[r]
	if s == nil {
		s = &stream{turn: make(chan struct{}, 1), connected: make(chan struct{})}
		w.streams[r] = s
	}
	return s
}

// attach makes c the connection of a receiver's stream, or returns a refusal. The caller closes
// stream.connected when the handshake is complete.
func (w *World) attach(h hello, c *conn) (*stream, error) {
	if h.Ticket != w.ticket {
		return nil, refusal{misfit, fmt.Sprintf("rank %d is in a world that has ended", h.Rank)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for r, s := range w.streams {
		if r.from == h.Rank && s.conn != nil {
			open++
		}
	}
	s := w.stream(route{h.Rank, w.cfg.Rank, h.Channel})
	if s.conn != nil {
		return nil, refusal{misfit, fmt.Sprintf("rank %d has already connected for %q", h.Rank, h.Channel)}
	}
	if open >= maxChannels {
		return nil, refusal{misfit, fmt.Sprintf("rank %d has %d channels, expected no more", h.Rank, open)}
	}
	s.conn = c
	return s, nil
}

// Send implements parallel.Transport.
func (w *World) Send(ctx context.Context, to parallel.Envelope, data []byte) error {
	c, err := w.begin(ctx, to, route{w.cfg.Rank, to.Peer, to.Channel})
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.takeTurn(); err != nil {
		return c.result(err)
	}
	defer c.releaseTurn()
	if c.s.conn == nil {
		if err := c.connect(); err != nil {
			return c.result(err)
		}
	}
	return c.result(c.send(data))
}

// Recv implements parallel.Transport.
func (w *World) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	c, err := w.begin(ctx, from, route{from.Peer, w.cfg.Rank, from.Channel})
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.awaitSender(); err != nil {
		return c.result(err)
	}
	if err := c.takeTurn(); err != nil {
		return c.result(err)
	}
	defer c.releaseTurn()
	return c.result(c.receive(into))
}

// call is a Send or a Recv.
type call struct {
	w        *World
	ctx      context.Context
	envelope parallel.Envelope
	s        *stream
	done     func() // ends the entry in World.waits
}

// begin starts a call. It returns an error if nothing can be sent or received. Otherwise the caller
// calls end.
func (w *World) begin(ctx context.Context, e parallel.Envelope, r route) (*call, error) {
	if e.Peer < 0 || e.Peer >= w.cfg.Size || e.Peer == w.cfg.Rank {
		return nil, fmt.Errorf("rank is %d, expected 0 to %d and not this one, %d", e.Peer,
			w.cfg.Size-1, w.cfg.Rank)
	}
	if e.Channel == "" || len(e.Channel) > parallel.MaxChannel {
		return nil, fmt.Errorf("channel is %q, expected 1 to %d bytes", e.Channel, parallel.MaxChannel)
	}
	w.calls.RLock()
	c := &call{w: w, ctx: ctx, envelope: e, done: w.waits.On(e.Peer)}
	w.mu.Lock()
	c.s = w.stream(r)
	w.mu.Unlock()
	if w.life.Err() != nil || ctx.Err() != nil {
		defer c.end()
		return nil, c.result(context.Canceled)
	}
	return c, nil
}

func (c *call) end() {
	c.done()
	c.w.calls.RUnlock()
}

// result converts the error of a call to its result: nil for nil. Otherwise the error fails the world,
// unless life has ended already, and result waits for the verdict and returns it.
func (c *call) result(err error) error {
	if err == nil {
		return nil
	}
	rank := c.envelope.Peer
	switch ended := c.ctx.Err(); {
	case c.w.life.Err() != nil:
	case errors.Is(ended, context.DeadlineExceeded):
		c.w.fail(rank, fmt.Errorf("no message before the deadline in %s", c.envelope.In()), true)
	case ended != nil:
		c.w.fail(c.w.cfg.Rank, ended, false)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.w.fail(rank, fmt.Errorf("no message for %v in %s", c.envelope.Limit, c.envelope.In()), true)
	case closedByPeer(err):
		c.w.fail(rank, fmt.Errorf("connection is closed in %s", c.envelope.In()), false)
	case errors.As(err, new(forged)):
		c.w.fail(rank, fmt.Errorf("%s: %w", c.envelope.In(), err), false)
	default:
		c.w.fail(rank, peer.Fault(err), false)
	}
	return c.w.verdict()
}

// takeTurn waits until the stream carries no other message.
func (c *call) takeTurn() error {
	select {
	case c.s.turn <- struct{}{}:
		return nil
	case <-c.w.life.Done():
		return net.ErrClosed
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *call) releaseTurn() { <-c.s.turn }

// awaitSender waits until the sender has connected.
func (c *call) awaitSender() error {
	var late <-chan time.Time // nil, and so never ready, without a limit
	if c.envelope.Limit > 0 {
		timer := time.NewTimer(c.envelope.Limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.s.connected:
		return nil
	case <-c.w.left[c.envelope.Peer]:
	case <-late:
		return os.ErrDeadlineExceeded
	case <-c.w.life.Done():
		return net.ErrClosed
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	select {
	case <-c.s.connected: // the sender connected before it left, so its message may have arrived
		return nil
	default:
		return fmt.Errorf("left before %s", c.envelope.In())
	}
}

// connect makes the connection of a sender's stream. It tries again for Config.Silence if the handshake
// breaks off, for example because the receiver has too many handshakes.
func (c *call) connect() error {
	w := c.w
	ctx, cancel := context.WithTimeout(c.ctx, w.cfg.Silence)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	for {
		raw, err := w.cfg.dial(ctx, w.addrs[c.envelope.Peer])
		if err != nil {
			return err
		}
		conn, err := c.handshake(ctx, raw)
		if err == nil {
			w.mu.Lock()
			c.s.conn = conn
			w.mu.Unlock()
			w.tasks.Go(func() { w.answerKeepalives(c.s, c.envelope) })
			return nil
		}
		if ctx.Err() != nil || errors.As(err, new(refusal)) {
			// raw stays open until life ends, because the receiver would report its end as a failure.
			return fmt.Errorf("connect: %w", err)
		}
		w.drop(raw)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return fmt.Errorf("connect: %w", err)
		}
	}
}

// handshake is the sender's part of the handshake.
func (c *call) handshake(ctx context.Context, raw net.Conn) (*conn, error) {
	w := c.w
	if !w.track(raw) {
		return nil, net.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // ends the handshake
	h := hello{Rank: w.cfg.Rank, Size: w.cfg.Size, To: c.envelope.Peer, Run: w.cfg.Run, Numerics: w.cfg.Numerics,
		Channel: c.envelope.Channel, Ticket: w.tickets[c.envelope.Peer]}
	conn := newConn(raw)
	err := conn.connectHandshake(w.cfg.Token, h, time.Now().Add(w.cfg.Silence))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return conn, err
}

// send writes a message: its header and data.
func (c *call) send(data []byte) error {
	conn := c.s.conn
	defer c.interrupt(conn.SetWriteDeadline)()
	header := newHeader(c.envelope.Label, len(data))
	return conn.send(header, data, func() error { return c.extend(conn.SetWriteDeadline) })
}

// receive reads a message into memory of its length, and keepalives before it.
func (c *call) receive(into []byte) error {
	s, conn := c.s, c.s.conn
	defer c.interrupt(conn.SetReadDeadline)()
	s.frames.Add(1)
	s.reading.Store(true)
	defer s.reading.Store(false)
	extend := func() error {
		s.frames.Add(1)
		return c.extend(conn.SetReadDeadline)
	}
	label, length, err := conn.receiveHeader(extend)
	for err == nil && label.Op == opKeepalive {
		s.frames.Add(1)
		if err = conn.receiveData(make([]byte, min(length, maxFrame)), nil); err == nil {
			label, length, err = conn.receiveHeader(nil) // nil: a keepalive does not extend the message's limit
		}
	}
	if err == nil {
		err = parallel.Check(label, c.envelope.Label, length, uint64(len(into)))
	}
	if err != nil {
		return err
	}
	s.awaited.Store(uint32(min(len(into), maxFrame)))
	defer s.awaited.Store(0)
	return conn.receiveData(into, extend)
}

// newHeader returns the header of a message of length bytes.
func newHeader(l parallel.Label, length int) []byte {
	header := binary.LittleEndian.AppendUint32(make([]byte, 0, headerSize), uint32(l.Op))
	header = binary.LittleEndian.AppendUint32(header, l.Count)
	return binary.LittleEndian.AppendUint64(header, uint64(length))
}

// receiveHeader receives a header of newHeader. It calls beforeFrame, unless that is nil, before it reads.
func (c *conn) receiveHeader(beforeFrame func() error) (l parallel.Label, length uint64, err error) {
	var h [headerSize]byte
	err = c.receiveSealed(h[:], beforeFrame)
	op := binary.LittleEndian.Uint32(h[:])
	count := binary.LittleEndian.Uint32(h[4:])
	return parallel.Label{Op: parallel.Op(op), Count: count}, binary.LittleEndian.Uint64(h[8:]), err
}

// interrupt makes the end of ctx interrupt reading or writing until stop is called. setDeadline is the
// method of the connection for that direction.
func (c *call) interrupt(setDeadline func(time.Time) error) (stop func()) {
	if c.ctx.Done() == nil {
		return func() {}
	}
	ran := make(chan struct{})
	cancel := context.AfterFunc(c.ctx, func() {
		_ = setDeadline(time.Unix(1, 0)) // a time in the past; fails only if the connection is closed
		close(ran)
	})
	return func() {
		if !cancel() {
			<-ran // without this wait, the function could interrupt the next call
		}
	}
}

// extend moves the deadline of reading or writing to Envelope.Limit from now.
func (c *call) extend(setDeadline func(time.Time) error) error {
	var deadline time.Time
	if c.envelope.Limit > 0 {
		deadline = time.Now().Add(c.envelope.Limit)
	}
	if err := setDeadline(deadline); err != nil {
		return err
	}
	return c.ctx.Err() // if ctx ended before, setDeadline has just undone interrupt
}
