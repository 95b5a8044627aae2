// Package local connects ranks that are goroutines of one process.
package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// Endpoint is one rank's transport. Messages are not buffered: Send waits for Recv, which
// copies from the sender's memory.
type Endpoint struct {
	w     *world
	rank  int
	waits parallel.Waits
	left  chan struct{}
	leave sync.Once
	calls sync.RWMutex // read-locked by calls
}

// world is what all ranks share.
type world struct {
	ranks  []*Endpoint
	failed chan struct{} // closed once err is set

	mu    sync.Mutex
	err   error
	boxes map[route]chan letter
}

type route struct {
	from, to int
	channel  string
}

// letter lends the sender's memory to the receiver until read is closed.
type letter struct {
	label parallel.Label
	data  []byte
	read  chan struct{}
}

// New returns the transports of n ranks.
func New(n int) []*Endpoint {
	w := &world{failed: make(chan struct{}), boxes: map[route]chan letter{}, ranks: make([]*Endpoint, n)}
	for i := range w.ranks {
		w.ranks[i] = &Endpoint{w: w, rank: i, waits: make(parallel.Waits, n), left: make(chan struct{})}
	}
	return w.ranks
}

// Rank returns this rank.
func (e *Endpoint) Rank() int { return e.rank }

// Size returns the number of ranks.
func (e *Endpoint) Size() int { return len(e.w.ranks) }

// Send implements parallel.Transport.
func (e *Endpoint) Send(ctx context.Context, to parallel.Envelope, data []byte) error {
	c, err := e.begin(ctx, to)
	if err != nil {
		return err
	}
	defer c.end()
	l := letter{label: to.Label, data: data, read: make(chan struct{})}
	select {
	case e.w.box(route{e.rank, to.Peer, to.Channel}) <- l:
		<-l.read // the receiver has it and waits for nothing
		return nil
	case <-e.w.failed:
	case <-e.left:
	case <-c.peer.left:
	case <-ctx.Done():
	case <-c.late:
	}
	return c.fault()
}

// Recv implements parallel.Transport.
func (e *Endpoint) Recv(ctx context.Context, from parallel.Envelope, into []byte) error {
	return e.View(ctx, from, len(into), func(data []byte) { copy(into, data) })
}

// View implements parallel.Viewer.
func (e *Endpoint) View(ctx context.Context, from parallel.Envelope, n int, use func(data []byte)) error {
	c, err := e.begin(ctx, from)
	if err != nil {
		return err
	}
	defer c.end()
	select {
	case l := <-e.w.box(route{from.Peer, e.rank, from.Channel}):
		defer close(l.read)
		if err := parallel.Check(l.label, from.Label, uint64(len(l.data)), uint64(n)); err != nil {
			return e.w.fail(from.Peer, err)
		}
		use(l.data)
		return nil
	case <-e.w.failed:
	case <-e.left:
	case <-c.peer.left:
	case <-ctx.Done():
	case <-c.late:
	}
	return c.fault()
}

// Abort implements parallel.Transport.
func (e *Endpoint) Abort(err error) { _ = e.w.fail(e.rank, err) }

// Close implements parallel.Transport.
func (e *Endpoint) Close() error {
	e.leave.Do(func() { close(e.left) })
	e.calls.Lock()
	defer e.calls.Unlock()
	return nil
}

// box returns where messages are handed over.
func (w *world) box(r route) chan letter {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[r]
	if b == nil {
		b = make(chan letter)
		w.boxes[r] = b
	}
	return b
}

// fail ends all calls unless the world has failed already, and returns the first failure.
func (w *world) fail(culprit int, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = &parallel.RankError{Rank: culprit, Err: err}
		close(w.failed)
	}
	return w.err
}

// call is a Send or a Recv.
type call struct {
	e    *Endpoint
	ctx  context.Context
	at   parallel.Envelope
	peer *Endpoint
	late <-chan time.Time // after the limit; nil without one
	end  func()
}

func (e *Endpoint) begin(ctx context.Context, at parallel.Envelope) (*call, error) {
	if at.Peer < 0 || at.Peer >= e.Size() || at.Peer == e.rank {
		return nil, fmt.Errorf("rank is %d, expected one below %d and not this one, %d", at.Peer, e.Size(), e.rank)
	}
	e.calls.RLock()
	c := &call{e: e, ctx: ctx, at: at, peer: e.w.ranks[at.Peer]}
	if err := c.over(); err != nil {
		e.calls.RUnlock()
		return nil, err
	}
	done, stop := e.waits.On(at.Peer), func() bool { return true }
	if at.Limit > 0 {
		timer := time.NewTimer(at.Limit)
		c.late, stop = timer.C, timer.Stop
	}
	c.end = func() {
		stop()
		done()
		e.calls.RUnlock()
	}
	return c, nil
}

// over returns an error if nothing can be sent or received any more.
func (c *call) over() error {
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
		return c.e.w.fail(c.e.rank, err)
	}
	return nil
}

// fault returns why the call did not get its message.
func (c *call) fault() error {
	if err := c.over(); err != nil {
		return err
	}
	select {
	case <-c.peer.left:
		return c.e.w.fail(c.at.Peer, fmt.Errorf("left before %s", c.at.In()))
	default:
		return c.overdue("for " + c.at.Limit.String())
	}
}

func (c *call) overdue(when string) error {
	ranks := c.e.w.ranks
	culprit := parallel.Culprit(c.at.Peer, func(rank int) []int { return ranks[rank].waits.List() })
	return c.e.w.fail(culprit, fmt.Errorf("no message %s in %s", when, c.at.In()))
}
