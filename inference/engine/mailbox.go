package engine

import (
	"context"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// mailbox connects an engine's callers with its loop: requests, publishes and memory requests go in,
// counters come out. Its lock is held only to exchange values.
type mailbox struct {
	wake chan struct{} // holds a token if the mailbox has changed since the loop last woke

	mu      sync.Mutex // guards the fields below
	inbox   []*group
	orders  []*order
	rooms   []*room
	closing bool
	stats   Stats
}

// order is a pending publish, on its way to the loop.
type order struct {
	ctx      context.Context
	weights  inference.Weights
	checksum string
	done     chan error
}

// room is a request to allocate the memory for sampling, or to free it.
type room struct {
	allocate bool
	done     chan error
}

func newMailbox(stats Stats) *mailbox { return &mailbox{wake: make(chan struct{}, 1), stats: stats} }

// submit hands g to the loop.
func (b *mailbox) submit(g *group) error {
	return b.send(func() { b.inbox = append(b.inbox, g) })
}

// publish hands o to the loop.
func (b *mailbox) publish(o *order) error {
	return b.send(func() { b.orders = append(b.orders, o) })
}

// ask hands r to the loop.
func (b *mailbox) ask(r *room) error {
	return b.send(func() { b.rooms = append(b.rooms, r) })
}

// takeRooms takes memory requests out of the mailbox, in order, up to the first one that must wait:
// a release waits until the loop is idle.
func (b *mailbox) takeRooms(idle bool) (all []*room) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.rooms) > 0 && (idle || b.rooms[0].allocate) {
		all, b.rooms = append(all, b.rooms[0]), b.rooms[1:]
	}
	return all
}

// send puts something into the mailbox and wakes the loop, unless the engine closes.
func (b *mailbox) send(put func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return inference.ErrClosed
	}
	put()
	b.poke()
	return nil
}

// close makes the loop end.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closing = true
	b.poke()
}

// poke wakes the loop.
func (b *mailbox) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// collect empties the mailbox for the loop. closing reports that the engine closes.
func (b *mailbox) collect() (inbox []*group, orders []*order, closing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	inbox, orders = b.inbox, b.orders
	b.inbox, b.orders = nil, nil
	return inbox, orders, b.closing
}

// report sets the counters that latest returns.
func (b *mailbox) report(s Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats = s
}

// latest returns the counters of the last report.
func (b *mailbox) latest() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}
