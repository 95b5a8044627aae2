package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/easyrl/easyrl/internal/peer"
	"github.com/easyrl/easyrl/parallel"
)

const (
	headerSize   = 16      // operation, count and length of a message
	smallMessage = 4 << 10 // a message up to this size is received with its header at once
)

type route struct {
	from, to int
	channel  string
}

// stream is one end of the connection of a route: of the sender, which makes it, or of the receiver.
// Whoever holds the turn alone uses conn, but for keepalives (see keepalive.go).
type stream struct {
	turn      chan struct{} // holds a token while a message is sent or received
	connected chan struct{} // closed when conn may be used; of a receiver's stream
	conn      *conn         // nil before; set with World.mu held

	// Of a receiver's stream, for World.checkStreams.
	reading atomic.Bool   // whether a message is awaited
	frames  atomic.Uint32 // frames and messages so far; wraps
	within  atomic.Uint32 // bytes of the frame that is awaited within a message; 0 between messages
}

// stream returns the stream of a route. The caller holds mu.
func (w *World) stream(r route) *stream {
	s := w.streams[r]
	if s == nil {
		s = &stream{turn: make(chan struct{}, 1), connected: make(chan struct{})}
		w.streams[r] = s
	}
	return s
}

// attach makes c the connection of a receiver's stream. The caller closes connected when the handshake
// is complete.
func (w *World) attach(h hello, c *conn) (*stream, error) {
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
	if err := c.take(); err != nil {
		return c.fault(err)
	}
	defer c.release()
	if c.s.conn == nil {
		if err := c.connect(); err != nil {
			return c.fault(err)
		}
	}
	return c.fault(c.send(data))
}

// Recv implements parallel.Transport.
func (w *World) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	c, err := w.begin(ctx, from, route{from.Peer, w.cfg.Rank, from.Channel})
	if err != nil {
		return err
	}
	defer c.end()
	if err := c.awaitSender(); err != nil {
		return c.fault(err)
	}
	if err := c.take(); err != nil {
		return c.fault(err)
	}
	defer c.release()
	return c.fault(c.receive(into))
}

// call is a Send or a Recv.
type call struct {
	w    *World
	ctx  context.Context
	at   parallel.Envelope
	s    *stream
	done func()
}

// begin starts a call. It returns an error if nothing can be sent or received.
func (w *World) begin(ctx context.Context, at parallel.Envelope, r route) (*call, error) {
	if at.Peer < 0 || at.Peer >= w.cfg.Size || at.Peer == w.cfg.Rank {
		return nil, fmt.Errorf("rank is %d, expected one below %d and not this one, %d", at.Peer,
			w.cfg.Size, w.cfg.Rank)
	}
	if at.Channel == "" || len(at.Channel) > parallel.MaxChannel {
		return nil, fmt.Errorf("channel is %q, expected 1 to %d bytes", at.Channel, parallel.MaxChannel)
	}
	w.calls.RLock()
	c := &call{w: w, ctx: ctx, at: at, done: w.waits.On(at.Peer)}
	w.mu.Lock()
	c.s = w.stream(r)
	w.mu.Unlock()
	if w.life.Err() != nil || ctx.Err() != nil {
		defer c.end()
		return nil, c.fault(context.Canceled)
	}
	return c, nil
}

func (c *call) end() {
	c.done()
	c.w.calls.RUnlock()
}

// fault reports the error of a call and returns the verdict, or nil without an error.
func (c *call) fault(err error) error {
	if err == nil {
		return nil
	}
	rank := c.at.Peer
	switch ended := c.ctx.Err(); {
	case c.w.life.Err() != nil:
	case errors.Is(ended, context.DeadlineExceeded):
		c.w.fail(rank, fmt.Errorf("no message before the deadline in %s", c.at.In()), true)
	case ended != nil:
		c.w.fail(c.w.cfg.Rank, ended, false)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.w.fail(rank, fmt.Errorf("no message for %v in %s", c.at.Limit, c.at.In()), true)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		c.w.fail(rank, fmt.Errorf("connection is closed in %s", c.at.In()), false)
	case errors.As(err, new(forged)):
		c.w.fail(rank, fmt.Errorf("%s: %w", c.at.In(), err), false)
	default:
		c.w.fail(rank, peer.Fault(err), false)
	}
	return c.w.verdict()
}

// take waits until the stream carries no other message.
func (c *call) take() error {
	select {
	case c.s.turn <- struct{}{}:
		return nil
	case <-c.w.life.Done():
		return net.ErrClosed
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *call) release() { <-c.s.turn }

// awaitSender waits until the sender has connected.
func (c *call) awaitSender() error {
	var late <-chan time.Time
	if c.at.Limit > 0 {
		timer := time.NewTimer(c.at.Limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.s.connected:
		return nil
	case <-c.w.left[c.at.Peer]:
	case <-late:
		return os.ErrDeadlineExceeded
	case <-c.w.life.Done():
		return net.ErrClosed
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	select {
	case <-c.s.connected: // it left after it had sent
		return nil
	default:
		return fmt.Errorf("left before %s", c.at.In())
	}
}

// connect makes the connection of a sender's stream. It tries again if the handshake breaks off, for
// example because the receiver has too many others.
func (c *call) connect() error {
	w := c.w
	ctx, cancel := context.WithTimeout(c.ctx, w.cfg.Silence)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	for {
		raw, err := w.cfg.dial(ctx, w.addrs[c.at.Peer])
		if err != nil {
			return err
		}
		conn, err := c.handshake(ctx, raw)
		if err == nil {
			w.mu.Lock()
			c.s.conn = conn
			w.mu.Unlock()
			w.tasks.Go(func() { w.answerKeepalives(c.s, c.at) })
			return nil
		}
		if ctx.Err() != nil || errors.As(err, new(refusal)) {
			return fmt.Errorf("connect: %w", err) // raw stays open: its end would be another failure
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
	h := hello{Rank: w.cfg.Rank, Size: w.cfg.Size, To: c.at.Peer, Run: w.cfg.Run, Channel: c.at.Channel}
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
	defer c.watch(conn.SetWriteDeadline)()
	return conn.send(newHeader(c.at.Label, len(data)), data, func() error { return c.extend(conn.SetWriteDeadline) })
}

// receive reads a message into memory of its length.
func (c *call) receive(into []byte) error {
	s, conn := c.s, c.s.conn
	defer c.watch(conn.SetReadDeadline)()
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
			label, length, err = conn.receiveHeader(nil) // does not extend the limit of the message
		}
	}
	if err == nil {
		err = parallel.Check(label, c.at.Label, length, uint64(len(into)))
	}
	if err != nil {
		return err
	}
	s.within.Store(uint32(min(len(into), maxFrame)))
	defer s.within.Store(0)
	return conn.receiveData(into, extend)
}

// newHeader returns the header of a message of length bytes.
func newHeader(l parallel.Label, length int) []byte {
	header := binary.LittleEndian.AppendUint32(make([]byte, 0, headerSize), uint32(l.Op))
	header = binary.LittleEndian.AppendUint32(header, l.Count)
	return binary.LittleEndian.AppendUint64(header, uint64(length))
}

// receiveHeader receives a header; see receiveSealed for before.
func (c *conn) receiveHeader(before func() error) (l parallel.Label, length uint64, err error) {
	var h [headerSize]byte
	err = c.receiveSealed(h[:], before)
	op := binary.LittleEndian.Uint32(h[:])
	count := binary.LittleEndian.Uint32(h[4:])
	return parallel.Label{Op: parallel.Op(op), Count: count}, binary.LittleEndian.Uint64(h[8:]), err
}

// watch makes the end of ctx interrupt reading or writing, until stop is called.
func (c *call) watch(deadline func(time.Time) error) (stop func()) {
	if c.ctx.Done() == nil {
		return func() {}
	}
	ran := make(chan struct{})
	cancel := context.AfterFunc(c.ctx, func() {
		_ = deadline(time.Unix(1, 0)) // fails only if the connection is closed
		close(ran)
	})
	return func() {
		if !cancel() {
			<-ran // otherwise it could interrupt the next call
		}
	}
}

// extend gives the peer another limit.
func (c *call) extend(deadline func(time.Time) error) error {
	var until time.Time
	if c.at.Limit > 0 {
		until = time.Now().Add(c.at.Limit)
	}
	if err := deadline(until); err != nil {
		return err
	}
	return c.ctx.Err() // ctx may have ended before, and deadline has undone what watch did
}
