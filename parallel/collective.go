package parallel

import (
	"context"
	"fmt"
	"math"
	"unsafe"
)

// AllReduceSum replaces data by its sum over all ranks. Sums wrap, so their bits depend on
// neither the order nor the number of ranks.
func (g *Group) AllReduceSum(ctx context.Context, data []int64) error {
	return g.allReduce(ctx, view(data), evenly(len(data), len(g.ranks), 8), sumInt64)
}

// AllReduceMax replaces data by its maximum over all ranks. A NaN wins.
func (g *Group) AllReduceMax(ctx context.Context, data []float32) error {
	return g.allReduce(ctx, view(data), evenly(len(data), len(g.ranks), 4), maxFloat32)
}

// AllReduceOrdered replaces data by its sum over all ranks, added in the order of ranks. The
// bits depend on the number of ranks. It costs more than AllReduceSum.
func (g *Group) AllReduceOrdered(ctx context.Context, data []float32) error {
	// The sum passes along all ranks and then from the last one around to all others.
	all, last := view(data), len(g.ranks)-1
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
		r.sends = r.sends[:1] // the last rank has the sum
	}
	return g.collect(ctx, OpAllReduce, r)
}

// ReduceScatterSum adds data over all ranks; rank i gets its own range of the sum. Ranges
// follow each other in data and have counts[i] elements. The other ranges' values are
// meaningless afterwards.
func (g *Group) ReduceScatterSum(ctx context.Context, data []int64, counts []int) error {
	blocks, err := cut(data, counts, len(g.ranks))
	if err != nil {
		return fmt.Errorf("%s over %s: %w", OpReduceScatter, g.name, err)
	}
	n := len(g.ranks)
	return g.collect(ctx, OpReduceScatter, g.ring(blocks, g.rank-1, n-1, n-1, sumInt64))
}

// AllGather gives all ranks all ranges of data. Ranges follow each other and have counts[i]
// elements. Rank i has filled in its own.
func AllGather[T Element](ctx context.Context, g *Group, data []T, counts []int) error {
	blocks, err := cut(data, counts, len(g.ranks))
	if err != nil {
		return fmt.Errorf("%s over %s: %w", OpAllGather, g.name, err)
	}
	return g.collect(ctx, OpAllGather, g.ring(blocks, g.rank, len(g.ranks)-1, 0, nil))
}

// Broadcast gives all ranks root's data.
func Broadcast[T Element](ctx context.Context, g *Group, root int, data []T) error {
	n := len(g.ranks)
	if root < 0 || root >= n {
		return fmt.Errorf("%s over %s: root is %d, expected one below %d", OpBroadcast, g.name, root, n)
	}
	r := relay{reuse: 1}
	if g.rank == root {
		r.lead = 1 // nothing to wait for
	} else {
		r.recvs = [][]byte{view(data)}
	}
	if (g.rank+1)%n != root {
		r.sends = [][]byte{view(data)}
	}
	return g.collect(ctx, OpBroadcast, r)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier(ctx context.Context) error {
	return g.exclusive(OpBarrier, func(label Label) error {
		// In round d, rank r has heard of d ranks before it (Hensgen, Finkel and Manber 1988).
		n := len(g.ranks)
		for d := 1; d < n; d *= 2 {
			to := g.letter(label, (g.rank+d)%n)
			from := g.letter(label, (g.rank+n-d)%n)
			sent := make(chan error, 1)
			go func() { sent <- g.t.Send(ctx, to, nil) }()
			err := g.t.Recv(ctx, from, nil)
			if other := <-sent; err == nil {
				err = other
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// allReduce is a reduce-scatter followed by an all-gather, without a pause between them.
func (g *Group) allReduce(ctx context.Context, data []byte, blocks func(i int) (from, to int), f fold) error {
	n := len(g.ranks)
	all := make([][]byte, n)
	for i := range all {
		from, to := blocks(i)
		all[i] = data[from:to]
	}
	return g.collect(ctx, OpAllReduce, g.ring(all, g.rank-1, 2*(n-1), n-1, f))
}

// ring returns a relay in which each rank sends block first, then first-1 and so on, and so
// receives the block that it sends next. It has the given number of steps.
func (g *Group) ring(blocks [][]byte, first, steps, folds int, f fold) relay {
	n := len(blocks)
	r := relay{folds: folds, fold: f, lead: 1, reuse: n - 1}
	at := func(step int) []byte { return blocks[((first-step)%n+n)%n] }
	for step := range steps {
		r.sends = append(r.sends, at(step))
		r.recvs = append(r.recvs, at(step+1))
	}
	return r
}

// letter addresses a message of a collective.
func (g *Group) letter(label Label, peer int) Envelope {
	return Envelope{Peer: g.ranks[peer], Channel: g.name, Label: label, Limit: g.limit}
}

// collect runs a relay between this rank's neighbours in the group.
func (g *Group) collect(ctx context.Context, op Op, r relay) error {
	n := len(g.ranks)
	r.left, r.right = (g.rank+n-1)%n, (g.rank+1)%n
	return g.exclusive(op, func(label Label) error { return g.run(ctx, label, r) })
}

// exclusive runs a collective, unless the group has only one rank.
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

// evenly returns the i-th of n ranges of bytes of count elements, as even as possible.
func evenly(count, n, size int) func(i int) (from, to int) {
	each, more := count/n, count%n
	at := func(i int) int { return (i*each + min(i, more)) * size }
	return func(i int) (from, to int) { return at(i), at(i + 1) }
}

// cut returns the bytes of n consecutive ranges of data with counts elements.
func cut[T Element](data []T, counts []int, n int) ([][]byte, error) {
	if len(counts) != n {
		return nil, fmt.Errorf("counts has %d elements, expected one for each of %d ranks", len(counts), n)
	}
	total := 0
	for _, c := range counts {
		if c < 0 || c > math.MaxInt-total {
			return nil, fmt.Errorf("counts are %v, expected none below 0", counts)
		}
		total += c
	}
	if total != len(data) {
		return nil, fmt.Errorf("data has %d elements, expected the %d of all counts", len(data), total)
	}
	var one T
	bytes := view(data)
	blocks := make([][]byte, n)
	from := 0
	for i, c := range counts {
		to := from + c*int(unsafe.Sizeof(one))
		blocks[i] = bytes[from:to]
		from = to
	}
	return blocks, nil
}
