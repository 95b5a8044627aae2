// Package paralleltest holds the conformance suite that every parallel.Transport must pass.
package paralleltest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/easyrl/easyrl/parallel"
)

// limit is far above what any call takes.
const limit = 2 * time.Minute

// Check runs every operation among all ranks with many lengths and compares the results with
// plain code. All ranks call it with the same value of large.
func Check(ctx context.Context, t parallel.Transport, large int) error {
	ranks := make([]int, t.Size())
	for i := range ranks {
		ranks[i] = i
	}
	g, err := parallel.NewGroup(t, "world", ranks, limit)
	if err != nil {
		return err
	}
	for _, length := range []int{0, 1, 2, 3, 7, 64, 1000, large} {
		for op := range operations {
			if err := one(ctx, g, op, length, rand.New(rand.NewPCG(uint64(length), uint64(op)))); err != nil {
				return err
			}
		}
	}
	return neighbours(ctx, g)
}

// CheckMesh runs random operations of all axes of a mesh at the same time.
func CheckMesh(ctx context.Context, t parallel.Transport, m parallel.Mesh, seed uint64, calls int) error {
	tasks := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	for _, a := range []parallel.Axis{parallel.Data, parallel.Tensor, parallel.Pipeline} {
		g, err := m.Join(t, a, limit)
		if err != nil {
			return err
		}
		first := m.Group(t.Rank(), a)[0]
		tasks.Go(func(ctx context.Context) error {
			common := rand.New(rand.NewPCG(seed, uint64(a)<<32+uint64(first))) // the same in the whole group
			own := rand.New(rand.NewPCG(seed, uint64(t.Rank())))
			for range calls {
				for range own.IntN(20) {
					runtime.Gosched()
				}
				if err := one(ctx, g, common.IntN(operations), common.IntN(3000), common); err != nil {
					return err
				}
			}
			return neighbours(ctx, g)
		})
	}
	return tasks.Wait()
}

// operations is the number of operations of function one.
const operations = 7

// one runs an operation. rng is in the same state in all ranks.
func one(ctx context.Context, g *parallel.Group, op, length int, rng *rand.Rand) error {
	n := g.Size()
	counts := uneven(length, n, rng)
	root := rng.IntN(n)
	wide, narrow := inputs(n, length, rng)
	switch op {
	case 0:
		data := slices.Clone(wide[g.Rank()])
		err := g.AllReduceSum(ctx, data)
		return same(err, "all-reduce sum", data, sum(wide))
	case 1:
		data := slices.Clone(narrow[g.Rank()])
		err := g.AllReduceMax(ctx, data)
		if n == 1 {
			return same(err, "all-reduce maximum", bits(data), bits(narrow[0]))
		}
		return same(err, "all-reduce maximum", bits(data), bits(maximum(narrow)))
	case 2:
		data := slices.Clone(narrow[g.Rank()])
		err := g.AllReduceOrdered(ctx, data)
		return same(err, "ordered all-reduce", numbers(data), numbers(ordered(narrow)))
	case 3:
		data := slices.Clone(wide[g.Rank()])
		err := g.ReduceScatterSum(ctx, data, counts)
		from, to := between(counts, g.Rank())
		return same(err, "reduce-scatter", data[from:to], sum(wide)[from:to])
	case 4:
		want, data := make([]float32, length), make([]float32, length)
		for i := range n {
			from, to := between(counts, i)
			copy(want[from:to], narrow[i][from:to])
			if i == g.Rank() {
				copy(data[from:to], narrow[i][from:to])
			}
		}
		err := parallel.AllGather(ctx, g, data, counts)
		return same(err, "all-gather", bits(data), bits(want))
	case 5:
		data := slices.Clone(wide[g.Rank()])
		err := parallel.Broadcast(ctx, g, root, data)
		return same(err, "broadcast", data, wide[root])
	default:
		return g.Barrier(ctx)
	}
}

// inputs returns every rank's data. It has a period of 1009 elements, at which no block ends.
func inputs(n, length int, rng *rand.Rand) (wide [][]int64, narrow [][]float32) {
	const period = 1009
	for range n {
		w, f := make([]int64, length), make([]float32, length)
		for j := range min(period, length) {
			w[j] = int64(rng.Uint64())
			f[j] = float32(rng.NormFloat64())
			if rng.IntN(50) == 0 {
				f[j] = odd(rng)
			}
		}
		for j := period; j < length; j += period {
			copy(w[j:], w[:period])
			copy(f[j:], f[:period])
		}
		wide, narrow = append(wide, w), append(narrow, f)
	}
	return wide, narrow
}

// neighbours sends messages of all types to the next rank and receives the previous one's.
func neighbours(ctx context.Context, g *parallel.Group) error {
	n := g.Size()
	if n == 1 {
		return nil
	}
	to, from := (g.Rank()+1)%n, (g.Rank()+n-1)%n
	var posts []*parallel.Pending
	for i := range 40 { // more than maxPosts, so Post may block
		posts = append(posts, parallel.Post(ctx, g, to, []int32{int32(g.Rank()), int32(i)}))
		if i < 10 {
			continue
		}
		if err := pair(ctx, g, from, i-10); err != nil {
			return err
		}
	}
	for i := 30; i < 40; i++ {
		if err := pair(ctx, g, from, i); err != nil {
			return err
		}
	}
	for _, p := range posts {
		if err := p.Wait(); err != nil {
			return err
		}
	}
	empty := parallel.Post(ctx, g, to, []byte{})
	if err := parallel.Recv(ctx, g, from, []byte{}); err != nil {
		return err
	}
	if err := empty.Wait(); err != nil {
		return err
	}
	return pass(ctx, g, to, from)
}

// pass relays a long message from the first rank through all others. Each rank adds 1.
func pass(ctx context.Context, g *parallel.Group, to, from int) error {
	data := make([]float32, 300_000)
	if g.Rank() > 0 {
		if err := parallel.Recv(ctx, g, from, data); err != nil {
			return err
		}
	}
	for i, x := range data {
		if x != float32(g.Rank()) {
			return fmt.Errorf("element %d is %v, expected %d", i, x, g.Rank())
		}
		data[i]++
	}
	if to == 0 {
		return nil
	}
	return parallel.Send(ctx, g, to, data)
}

func pair(ctx context.Context, g *parallel.Group, from, i int) error {
	got := make([]int32, 2)
	err := parallel.Recv(ctx, g, from, got)
	return same(err, "receive", got, []int32{int32(from), int32(i)})
}

func same[T comparable](err error, what string, got, want []T) error {
	if err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s of %d elements: element %d is %v, expected %v", what, len(want), i, got[i], want[i])
		}
	}
	return nil
}

// odd returns a special value.
func odd(rng *rand.Rand) float32 {
	values := []uint32{0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f801234, 1}
	return math.Float32frombits(values[rng.IntN(len(values))])
}

func bits(data []float32) []uint32 {
	b := make([]uint32, len(data))
	for i, x := range data {
		b[i] = math.Float32bits(x)
	}
	return b
}

// numbers is like bits, with all NaN replaced by one: which NaN a sum of two NaN gives depends on the machine.
func numbers(data []float32) []uint32 {
	b := bits(data)
	for i, x := range data {
		if x != x {
			b[i] = 0x7fc00000
		}
	}
	return b
}

// uneven returns n counts with the given sum. Some may be 0.
func uneven(total, n int, rng *rand.Rand) []int {
	cuts := []int{0, total}
	for range n - 1 {
		cuts = append(cuts, rng.IntN(total+1))
	}
	slices.Sort(cuts)
	counts := make([]int, n)
	for i := range counts {
		counts[i] = cuts[i+1] - cuts[i]
	}
	return counts
}

func between(counts []int, i int) (from, to int) {
	for _, c := range counts[:i] {
		from += c
	}
	return from, from + counts[i]
}

func sum(all [][]int64) []int64 {
	total := make([]int64, len(all[0]))
	for _, data := range all {
		for i, x := range data {
			total[i] += x
		}
	}
	return total
}

func maximum(all [][]float32) []float32 {
	largest := slices.Clone(all[0])
	for i := range largest {
		for _, data := range all {
			switch x := data[i]; {
			case x != x || largest[i] != largest[i]:
				largest[i] = math.Float32frombits(0x7fc00000)
			case x > largest[i], x == 0 && largest[i] == 0 && !math.Signbit(float64(x)):
				largest[i] = x
			}
		}
	}
	return largest
}

func ordered(all [][]float32) []float32 {
	total := slices.Clone(all[0])
	for _, data := range all[1:] {
		for i, x := range data {
			total[i] += x
		}
	}
	return total
}
