package engine

import (
	"context"
	"sync"

	"github.com/easyrl/easyrl/inference"
)

// mailbox connects an engine's callers with its loop: requests, publishes and memory orders go in,
// counters come out. Its lock is held only to exchange values.
type mailbox struct {
	wake chan struct{} // has room for one token, which is there if the mailbox has changed since the loop woke

	mu           sync.Mutex // guards the fields below
	inbox        []*group
	orders       []*publishOrder
	memoryOrders []*memoryOrder
	closing      bool
	stats        Stats
}

// publishOrder asks the loop to make weights current.
type publishOrder struct {
	ctx      context.Context // if it has ended, the loop does nothing
	weights  inference.Weights
	checksum string
	done     chan error // gets the result; has room for it
}

// memoryOrder asks the loop to allocate the memory for sampling, or to free it.
type memoryOrder struct {
	allocate bool
	done     chan error // gets the result; has room for it
}

func newMailbox(stats Stats) *mailbox { return &mailbox{wake: make(chan struct{}, 1), stats: stats} }

// submit hands g to the loop.
func (b *mailbox) submit(g *group) error {
	return b.send(func() { b.inbox = append(b.inbox, g) })
}

// publish hands o to the loop.
func (b *mailbox) publish(o *publishOrder) error {
	return b.send(func() { b.orders = append(b.orders, o) })
}

// ask hands r to the loop.
func (b *mailbox) ask(r *memoryOrder) error {
	return b.send(func() { b.memoryOrders = append(b.memoryOrders, r) })
}

// takeMemoryOrders takes memory orders out of the mailbox, in order, up to the first that must wait: an
// order to free the memory waits until the loop is idle.
func (b *mailbox) takeMemoryOrders(idle bool) (all []*memoryOrder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.memoryOrders) > 0 && (idle || b.memoryOrders[0].allocate) {
		all = append(all, b.memoryOrders[0])
		b.memoryOrders = b.memoryOrders[1:]
	}
	return all
}

// send calls put with the mailbox locked and wakes the loop. It returns an error if the engine closes.
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

// close makes the loop end and later sends fail.
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

// collect takes all requests and publishes out of the mailbox. closing reports that the engine closes.
func (b *mailbox) collect() (inbox []*group, orders []*publishOrder, closing bool) {
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
