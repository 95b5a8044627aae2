package parallel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Local is the transport of a rank among goroutines of one process. Messages are not buffered: Send
// waits for Recv, which copies from the sender's memory.
type Local struct {
	w     *localWorld
	rank  int
	waits Waits
	left  chan struct{} // closed when this rank leaves
	leave sync.Once     // closes left
	calls sync.RWMutex  // read-locked by each Send and Recv, so that Close can wait for them
}

// localWorld is the state that all ranks share.
type localWorld struct {
	ranks  []*Local
	failed chan struct{} // closed once err is set

	mu    sync.Mutex                       // guards boxes, and err until failed is closed; never held while waiting
	err   error                            // the first failure; constant once failed is closed
	boxes map[localRoute]chan localMessage // unbuffered; never removed
}

type localRoute struct {
	from, to int
	channel  string
}

// localMessage is a message in the sender's memory, which the receiver may read until it closes read.
type localMessage struct {
	label Label
	data  []byte
	read  chan struct{} // closed by the receiver
}

// NewLocal returns the transports of n ranks of this process.
func NewLocal(n int) []*Local {
	w := &localWorld{
		ranks: make([]*Local, n), failed: make(chan struct{}), boxes: map[localRoute]chan localMessage{},
	}
	for i := range w.ranks {
		w.ranks[i] = &Local{w: w, rank: i, waits: make(Waits, n), left: make(chan struct{})}
	}
	return w.ranks
}

// Rank returns this rank.
func (e *Local) Rank() int { return e.rank }

// Size returns the number of ranks.
func (e *Local) Size() int { return len(e.w.ranks) }

// Send implements Transport.
func (e *Local) Send(ctx context.Context, to Envelope, data []byte) error {
	c, err := e.begin(ctx, to)
	if err != nil {
		return err
	}
	defer c.end()
	m := localMessage{label: to.Label, data: data, read: make(chan struct{})}
	select {
	case e.w.box(localRoute{e.rank, to.Peer, to.Channel}) <- m:
		<-m.read // closed soon, because the receiver has the message and waits for nothing
		return nil
	case <-e.w.failed:
	case <-e.left:
	case <-c.peer.left:
	case <-ctx.Done():
	case <-c.late:
	}
	return c.fault()
}

// Recv implements Transport.
func (e *Local) Recv(ctx context.Context, from Envelope, into []byte) error {
	return e.View(ctx, from, len(into), func(data []byte) { copy(into, data) })
}

// View implements Viewer.
func (e *Local) View(ctx context.Context, from Envelope, n int, use func(data []byte)) error {
	c, err := e.begin(ctx, from)
	if err != nil {
		return err
	}
	defer c.end()
	select {
	case m := <-e.w.box(localRoute{from.Peer, e.rank, from.Channel}):
		defer close(m.read)
		if err := Check(m.label, from.Label, uint64(len(m.data)), uint64(n)); err != nil {
			return e.w.fail(e.rank, from.Peer, err)
		}
		use(m.data)
		return nil
	case <-e.w.failed:
	case <-e.left:
	case <-c.peer.left:
	case <-ctx.Done():
	case <-c.late:
	}
	return c.fault()
}

// Abort implements Transport.
func (e *Local) Abort(err error) { _ = e.w.fail(e.rank, e.rank, err) }

// Close implements Transport.
func (e *Local) Close() error {
	e.leave.Do(func() { close(e.left) })
	e.calls.Lock()
	defer e.calls.Unlock()
	return nil
}

// box returns the channel over which the messages of a route are handed over. It makes the channel at
// the first call, from either end.
func (w *localWorld) box(r localRoute) chan localMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[r]
	if b == nil {
		b = make(chan localMessage)
		w.boxes[r] = b
	}
	return b
}

// fail records err of the rank culprit, as rank by finds it, and ends all calls, unless the world has failed
// already. It returns the first failure.
func (w *localWorld) fail(by, culprit int, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = &RankError{Rank: culprit, Err: err, Lost: by != culprit}
		close(w.failed)
	}
	return w.err
}

// localCall is a Send or a Recv.
type localCall struct {
	e        *Local
	ctx      context.Context
	envelope Envelope
	peer     *Local
	late     <-chan time.Time // receives after envelope.Limit; nil, and so never ready, without a limit
	end      func()           // ends the call; every caller of begin defers it
}

// begin starts a call, or returns an error if nothing can be sent or received.
func (e *Local) begin(ctx context.Context, envelope Envelope) (*localCall, error) {
	peer := envelope.Peer
	if peer < 0 || peer >= e.Size() || peer == e.rank {
		return nil, fmt.Errorf("rank is %d, expected 0 to %d and not this one, %d", peer, e.Size()-1, e.rank)
	}
	e.calls.RLock()
	c := &localCall{e: e, ctx: ctx, envelope: envelope, peer: e.w.ranks[peer]}
	if err := c.stopped(); err != nil {
		e.calls.RUnlock()
		return nil, err
	}
	done := e.waits.On(peer)
	stop := func() bool { return true }
	if envelope.Limit > 0 {
		timer := time.NewTimer(envelope.Limit)
		c.late = timer.C
		stop = timer.Stop
	}
	c.end = func() {
		stop()
		done()
		e.calls.RUnlock()
	}
	return c, nil
}

// stopped returns an error if the world has failed, this rank has left or ctx has ended; the last also
// fails the world.
func (c *localCall) stopped() error {
	select {
	case <-c.e.w.failed:
		return c.e.w.err
	default:
	}
	select {
	case <-c.e.left:
		return net.ErrClosed
	default:
	}
	switch err := c.ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return c.overdue("before the deadline")
	case err != nil:
		return c.e.w.fail(c.e.rank, c.e.rank, err)
	}
	return nil
}

// fault returns why the call did not get its message.
func (c *localCall) fault() error {
	if err := c.stopped(); err != nil {
		return err
	}
	select {
	case <-c.peer.left:
		return c.e.w.fail(c.e.rank, c.envelope.Peer, fmt.Errorf("left before %s", c.envelope.In()))
	default:
		return c.overdue("for " + c.envelope.Limit.String())
	}
}

// overdue fails the world with the rank that keeps c waiting. when completes "no message … in …".
func (c *localCall) overdue(when string) error {
	ranks := c.e.w.ranks
	culprit := Culprit(c.envelope.Peer, func(rank int) []int { return ranks[rank].waits.List() })
	return c.e.w.fail(c.e.rank, culprit, fmt.Errorf("no message %s in %s", when, c.envelope.In()))
}
