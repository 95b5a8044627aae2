package parallel

import (
	"context"
	"fmt"
	"math"
	"unsafe"
)

// AllReduceSum replaces each element of data with the sum of that element over all ranks. All ranks
// pass the same length. Sums wrap, so they do not depend on the order in which ranks are added.
func (g *Group) AllReduceSum(ctx context.Context, data []int64) error {
	return g.allReduce(ctx, view(data), evenly(len(data), len(g.ranks), 8), sumInt64)
}

// AllReduceMax replaces each element of data with the maximum of that element over all ranks, or with
// NaN if it is NaN on any rank. All ranks pass the same length.
func (g *Group) AllReduceMax(ctx context.Context, data []float32) error {
	return g.allReduce(ctx, view(data), evenly(len(data), len(g.ranks), 4), maxFloat32)
}

// AllReduceOrdered replaces each element of data with the sum of that element over all ranks, added in
// the order of ranks: the same bits on every rank and in every call, but not for another number of
// ranks. All ranks pass the same length. It takes longer than AllReduceSum, because every sum passes
// the ranks one after another.
func (g *Group) AllReduceOrdered(ctx context.Context, data []float32) error {
	// Partial sums move from rank 0 to the last rank, and each rank on the way adds its own data. Then
	// the total moves from the last rank around to rank 0 and on to rank last-1.
	all := view(data)
	last := len(g.ranks) - 1
	r := relay{fold: sumFloat32}
	switch g.rank {
	case 0:
		r.sends = [][]byte{all, all}
		r.recvs = [][]byte{all}
		r.lead = 1
	case last:
		r.sends = [][]byte{all}
		r.recvs = [][]byte{all}
		r.folds = 1
		r.reuse = 1
	default:
		r.sends = [][]byte{all, all}
		r.recvs = [][]byte{all, all}
		r.folds = 1
		r.reuse = 1
	}
	if g.rank == last-1 {
		r.sends = r.sends[:1] // the last rank already has the total
	}
	return g.runRelay(ctx, OpAllReduce, r)
}

// ReduceScatterSum cuts data into consecutive ranges, the i-th of counts[i] elements, and replaces
// range i on rank i with its sum over all ranks. Sums wrap. Other ranges have no meaning afterwards.
// All ranks pass the same counts, which add up to len(data).
func (g *Group) ReduceScatterSum(ctx context.Context, data []int64, counts []int) error {
	blocks, err := cut(data, counts, len(g.ranks))
	if err != nil {
		return fmt.Errorf("%s over %s: %w", OpReduceScatter, g.name, err)
	}
	n := len(g.ranks)
	r := ring{first: g.rank - 1, steps: n - 1, folds: n - 1, fold: sumInt64}
	return g.runRelay(ctx, OpReduceScatter, r.relay(blocks))
}

// AllGather cuts data into consecutive ranges, the i-th of counts[i] elements, and copies range i of
// rank i to all other ranks. All ranks pass the same counts, which add up to len(data).
func AllGather[T Element](ctx context.Context, g *Group, data []T, counts []int) error {
	blocks, err := cut(data, counts, len(g.ranks))
	if err != nil {
		return fmt.Errorf("%s over %s: %w", OpAllGather, g.name, err)
	}
	r := ring{first: g.rank, steps: len(g.ranks) - 1}
	return g.runRelay(ctx, OpAllGather, r.relay(blocks))
}

// Broadcast copies data of the rank root to data of all other ranks. All ranks pass the same length.
func Broadcast[T Element](ctx context.Context, g *Group, root int, data []T) error {
	n := len(g.ranks)
	if root < 0 || root >= n {
		return fmt.Errorf("%s over %s: root is %d, expected 0 to %d", OpBroadcast, g.name, root, n-1)
	}
	r := relay{reuse: 1}
	if g.rank == root {
		r.lead = 1 // the root receives nothing, so its only block waits for nothing
	} else {
		r.recvs = [][]byte{view(data)}
	}
	if (g.rank+1)%n != root {
		r.sends = [][]byte{view(data)} // the chain ends at the rank before root
	}
	return g.runRelay(ctx, OpBroadcast, r)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.exclusive(OpBarrier, func(label Label) error {
		// The dissemination barrier (Hensgen, Finkel and Manber 1988). Before the round with distance d,
		// a rank knows that it and the d-1 ranks before it have called Barrier. The message of that
		// round reports the d ranks before those. Ranks wrap around.
		n := len(g.ranks)
		for d := 1; d < n; d *= 2 {
			next := g.envelope(label, (g.rank+d)%n)
			previous := g.envelope(label, (g.rank+n-d)%n)
			sendErr := make(chan error, 1)
			go func() { sendErr <- g.t.Send(ctx, next, nil) }()
			err := g.t.Recv(ctx, previous, nil)
			if sendErr := <-sendErr; err == nil {
				err = sendErr
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// allReduce is a reduce-scatter followed by an all-gather in a single relay. byteRange returns where the
// block of rank i begins and ends in data.
func (g *Group) allReduce(ctx context.Context, data []byte, byteRange func(i int) (from, to int), f fold) error {
	n := len(g.ranks)
	blocks := make([][]byte, n)
	for i := range blocks {
		from, to := byteRange(i)
		blocks[i] = data[from:to]
	}
	r := ring{first: g.rank - 1, steps: 2 * (n - 1), folds: n - 1, fold: f}
	return g.runRelay(ctx, OpAllReduce, r.relay(blocks))
}

// ring describes a relay over data that is cut into one block per rank. In each step a rank sends one
// block and receives the one before it, which it sends in the next step. Indices of blocks wrap around.
type ring struct {
	first int  // index of the block that this rank sends in step 0
	steps int  // number of blocks that each rank sends and receives
	folds int  // number of first steps in which the received block is folded; later ones replace it
	fold  fold // nil if folds is 0
}

// relay returns the relay over blocks, which has one element for each rank.
func (r ring) relay(blocks [][]byte) relay {
	n := len(blocks)
	// A block is sent one step after it is received, and received again n-1 steps after it is sent.
	result := relay{folds: r.folds, fold: r.fold, lead: 1, reuse: n - 1}
	block := func(step int) []byte {
		return blocks[((r.first-step)%n+n)%n] // "+n" because % of a negative number is negative
	}
	for step := range r.steps {
		result.sends = append(result.sends, block(step))
		result.recvs = append(result.recvs, block(step+1))
	}
	return result
}

// envelope addresses a message of a collective to or from a rank of the group.
func (g *Group) envelope(label Label, peer int) Envelope {
	return Envelope{Peer: g.ranks[peer], Channel: g.name, Label: label, Limit: g.limit}
}

// runRelay runs r as a collective, with this rank's neighbours in the group.
func (g *Group) runRelay(ctx context.Context, op Op, r relay) error {
	n := len(g.ranks)
	r.left = (g.rank + n - 1) % n
	r.right = (g.rank + 1) % n
	return g.exclusive(op, func(label Label) error { return g.run(ctx, label, r) })
}

// exclusive calls run with the label of the next collective, unless the group has only one rank. It
// returns an error if another collective is running.
func (g *Group) exclusive(op Op, run func(label Label) error) error {
	if len(g.ranks) == 1 {
		return nil
	}
	if !g.collective.TryLock() {
		return fmt.Errorf("%s over %s: another collective runs, expected one at a time", op, g.name)
	}
	defer g.collective.Unlock()
	label := Label{Op: op, Count: g.count}
	g.count++
	if err := run(label); err != nil {
		return fmt.Errorf("%s over %s: %w", op, g.name, err)
	}
	return nil
}

// evenly cuts count elements of size bytes each into n consecutive ranges whose lengths differ by at
// most one element. The result returns the bytes at which range i begins and ends.
func evenly(count, n, size int) func(i int) (from, to int) {
	base := count / n
	longer := count % n // number of ranges with one element more, which come first
	start := func(i int) int { return (i*base + min(i, longer)) * size }
	return func(i int) (from, to int) { return start(i), start(i + 1) }
}

// cut returns the bytes of n consecutive ranges of data, the i-th of counts[i] elements.
func cut[T Element](data []T, counts []int, n int) ([][]byte, error) {
	if len(counts) != n {
		return nil, fmt.Errorf("counts has %d elements, expected one for each of %d ranks", len(counts), n)
	}
	total := 0
	for _, c := range counts {
		if c < 0 || c > math.MaxInt-total { // or the total would overflow
			return nil, fmt.Errorf("counts are %v, expected none below 0", counts)
		}
		total += c
	}
	if total != len(data) {
		return nil, fmt.Errorf("data has %d elements, expected the %d of all counts", len(data), total)
	}
	var element T
	bytes := view(data)
	blocks := make([][]byte, n)
	from := 0
	for i, c := range counts {
		to := from + c*int(unsafe.Sizeof(element))
		blocks[i] = bytes[from:to]
		from = to
	}
	return blocks, nil
}
