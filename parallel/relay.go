package parallel

import (
	"context"
	"math"
	"sync"
)

// chunk is the number of bytes that a collective sends at once. While a rank folds one chunk, the next
// one is under way. It is a multiple of each Element's size, so that a fold gets complete elements.
const chunk = 4 << 20

// relay is one rank's part of a collective: blocks of data that it receives from the rank on
// its left and sends to the rank on its right. Both run at the same time, chunk by chunk: one
// goroutine sends, another one receives and folds.
//
// Blocks are the caller's memory, and the same memory may be in both lists, even several times. lead and
// reuse keep the two goroutines from using the same chunk at the same time: a chunk is sent only after it
// was received, and received again only after it was sent. The order in which a chunk passes the ranks,
// and so the order of its folds, depends on the lists and never on timing. A fold that depends on the
// order therefore gives the same bits each time.
type relay struct {
	left, right int      // positions in the group of the ranks to receive from and to send to
	sends       [][]byte // blocks to send, in order
	recvs       [][]byte // blocks to receive into, in order
	folds       int      // number of first blocks of recvs that are folded; the others are overwritten
	fold        fold     // nil if folds is 0

	lead  int // chunk j of sends[i] waits until chunk j of recvs[i-lead] is received; if i < lead, for nothing
	reuse int // chunk j of recvs[i] waits until chunk j of sends[i-reuse] is sent; if i < reuse, for nothing
}

// gate publishes the progress of one goroutine to one other goroutine, which may wait for it.
type gate struct {
	mu     sync.Mutex
	moved  sync.Cond // signaled when a field below changes
	block  int       // index of the block in progress
	chunk  int       // number of chunks of that block that are done
	broken bool      // whether the goroutine has failed
}

func newGate() *gate {
	g := new(gate)
	g.moved.L = &g.mu
	return g
}

// pass records that a chunk is done. Chunks are done in order.
func (g *gate) pass(block, chunk int) {
	g.mu.Lock()
	g.block, g.chunk = block, chunk+1
	g.mu.Unlock()
	g.moved.Signal()
}

// open ends all waiting for g, because all chunks are done or one has failed.
func (g *gate) open(failed bool) {
	g.mu.Lock()
	g.block = math.MaxInt // above each index that wait gets
	g.broken = failed
	g.mu.Unlock()
	g.moved.Signal()
}

// wait returns true as soon as a chunk is done, or false if the goroutine has failed. Chunks of blocks
// with a negative index count as done.
func (g *gate) wait(block, chunk int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.block < block || (g.block == block && g.chunk <= chunk) {
		g.moved.Wait()
	}
	return !g.broken
}

// run does this rank's part of a collective. If both directions fail, it returns the error of receiving.
func (g *Group) run(ctx context.Context, label Label, r relay) error {
	received, sent := newGate(), newGate()
	sendErr := make(chan error, 1)
	go func() {
		err := g.sendAll(ctx, label, r, received, sent)
		sent.open(err != nil)
		sendErr <- err
	}()
	err := g.recvAll(ctx, label, r, received, sent)
	received.open(err != nil)
	if sendErr := <-sendErr; err == nil {
		err = sendErr
	}
	return err
}

// sendAll sends the relay's blocks. It waits for the gate received and moves the gate sent.
func (g *Group) sendAll(ctx context.Context, label Label, r relay, received, sent *gate) error {
	e := g.envelope(label, r.right)
	for i, block := range r.sends {
		for j, from := 0, 0; from < len(block); j, from = j+1, from+chunk {
			if !received.wait(i-r.lead, j) {
				return nil // recvAll has failed
			}
			if err := g.t.Send(ctx, e, block[from:min(from+chunk, len(block))]); err != nil {
				return err
			}
			sent.pass(i, j)
		}
	}
	return nil
}

// recvAll receives the relay's blocks. It waits for the gate sent and moves the gate received.
func (g *Group) recvAll(ctx context.Context, label Label, r relay, received, sent *gate) error {
	e := g.envelope(label, r.left)
	for i, block := range r.recvs {
		for j, from := 0, 0; from < len(block); j, from = j+1, from+chunk {
			if !sent.wait(i-r.reuse, j) {
				return nil // sendAll has failed
			}
			part := block[from:min(from+chunk, len(block))]
			var err error
			if i < r.folds {
				err = g.recvFold(ctx, e, part, r.fold)
			} else {
				err = g.t.Recv(ctx, e, part)
			}
			if err != nil {
				return err
			}
			received.pass(i, j)
		}
	}
	return nil
}

// recvFold receives a message and folds it into own.
func (g *Group) recvFold(ctx context.Context, e Envelope, own []byte, f fold) error {
	if v, ok := g.t.(Viewer); ok {
		return v.View(ctx, e, len(own), func(other []byte) { f(own, other) })
	}
	if g.scratch == nil {
		g.scratch = make([]byte, chunk)
	}
	other := g.scratch[:len(own)]
	if err := g.t.Recv(ctx, e, other); err != nil {
		return err
	}
	f(own, other)
	return nil
}
