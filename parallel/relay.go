package parallel

import (
	"context"
	"sync"
)

// chunk is the number of bytes that a collective sends at once. While a rank works on one chunk, the
// next one is under way. It is a multiple of each Element's size, so that a fold gets whole elements.
const chunk = 4 << 20

// relay is one rank's part of a collective: blocks of data that it receives from the rank on
// its left and sends to the rank on its right. Both run at the same time, chunk by chunk: one
// goroutine sends, another one receives and folds.
//
// Blocks are the caller's memory, and a block may be in both lists. lead and reuse keep the two
// goroutines off the same chunk: a chunk is sent after it was received, and received again after it
// was sent. Each chunk is folded once for each rank in the order of the relay, whatever the timing, so
// a fold that depends on the order gives the same bits each time.
type relay struct {
	left, right int // positions in the group
	sends       [][]byte
	recvs       [][]byte
	folds       int // receives before this index are folded into the block; later ones replace it
	fold        fold

	// sends[i] waits for recvs[i-lead], chunk by chunk, and recvs[i] for sends[i-reuse].
	lead, reuse int
}

// gate lets one goroutine wait for another's progress.
type gate struct {
	mu     sync.Mutex
	moved  sync.Cond
	block  int // of the last chunk that is done
	chunk  int // the number of chunks of block that are done
	broken bool
}

func newGate() *gate {
	g := new(gate)
	g.moved.L = &g.mu
	return g
}

// pass records that a chunk is done.
func (g *gate) pass(block, chunk int) {
	g.mu.Lock()
	g.block, g.chunk = block, chunk+1
	g.mu.Unlock()
	g.moved.Signal()
}

// open makes all waits return: true if all chunks are done, false if one has failed.
func (g *gate) open(failed bool) {
	g.mu.Lock()
	g.block = 1 << 30
	g.broken = failed
	g.mu.Unlock()
	g.moved.Signal()
}

// wait returns true when a chunk is done, or false when it will not be done. Chunks of blocks below 0
// are done.
func (g *gate) wait(block, chunk int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.block < block || g.block == block && g.chunk <= chunk {
		g.moved.Wait()
	}
	return !g.broken
}

// run does this rank's part of a collective.
func (g *Group) run(ctx context.Context, label Label, r relay) error {
	received, sent := newGate(), newGate()
	done := make(chan error, 1)
	go func() {
		err := g.sendAll(ctx, label, r, received, sent)
		sent.open(err != nil)
		done <- err
	}()
	err := g.recvAll(ctx, label, r, received, sent)
	received.open(err != nil)
	if other := <-done; err == nil {
		err = other
	}
	return err
}

// sendAll sends the relay's blocks.
func (g *Group) sendAll(ctx context.Context, label Label, r relay, received, sent *gate) error {
	e := g.letter(label, r.right)
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

// recvAll receives the relay's blocks.
func (g *Group) recvAll(ctx context.Context, label Label, r relay, received, sent *gate) error {
	e := g.letter(label, r.left)
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
