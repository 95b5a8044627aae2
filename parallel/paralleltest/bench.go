package paralleltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
)

// length is how many elements a measured collective has.
const length = 8 << 20

// Case is a collective to measure.
type Case struct {
	Name    string
	Bytes   int // that a rank receives
	Prepare func(ctx context.Context, g *parallel.Group) (call func() error)
}

// Cases returns what is measured with n ranks.
func Cases(n int) []Case {
	return []Case{
		{"AllReduceSum", 2 * (n - 1) * length * 8 / n, func(ctx context.Context, g *parallel.Group) func() error {
			data := make([]int64, length)
			Touch(data)
			return func() error { return g.AllReduceSum(ctx, data) }
		}},
		{"AllGather", (n - 1) * length * 4 / n, func(ctx context.Context, g *parallel.Group) func() error {
			data, counts := make([]float32, length), make([]int, n)
			Touch(data)
			for i := range counts {
				counts[i] = length / n
			}
			return func() error { return parallel.AllGather(ctx, g, data, counts) }
		}},
		{"Send", length * 4, func(ctx context.Context, g *parallel.Group) func() error {
			data, into := make([]float32, length), make([]float32, length)
			Touch(data)
			Touch(into)
			return func() error { // around the ring
				p := parallel.Post(ctx, g, (g.Rank()+1)%n, data)
				if err := parallel.Recv(ctx, g, (g.Rank()+n-1)%n, into); err != nil {
					return err
				}
				return p.Wait()
			}
		}},
	}
}

// Bench compares collectives of 2 and 4 ranks with the simplest way to move as many bytes. plain
// prepares it, which is not measured, and returns a function that moves that many bytes to each of n
// ranks, a number of times. "speed" is the throughput of a collective divided by that of this function.
func Bench(b *testing.B, open Open, plain func(b *testing.B, n, bytes int) (copies func(times int))) {
	for _, n := range []int{2, 4} {
		for _, c := range Cases(n) {
			b.Run(fmt.Sprintf("%s/%d", c.Name, n), func(b *testing.B) {
				b.SetBytes(int64(n * c.Bytes))
				measure(b, open(b, n), c.Prepare, plain(b, n, c.Bytes))
			})
		}
	}
}

// measure compares b.N collectives with as many copies.
func measure(b *testing.B, world []parallel.Transport, call func(context.Context, *parallel.Group) func() error,
	copies func(times int)) {
	ranks := make([]int, len(world))
	for i := range ranks {
		ranks[i] = i
	}
	calls := make([]func() error, len(world))
	for i, t := range world {
		g, err := parallel.NewGroup(t, "bench", ranks, 0)
		require.NoError(b, err)
		calls[i] = call(b.Context(), g)
	}
	all := func(times int) {
		for _, err := range Ranks(world, func(t parallel.Transport) error {
			for range times {
				if err := calls[t.Rank()](); err != nil {
					return err
				}
			}
			return nil
		}) {
			require.NoError(b, err)
		}
	}
	all(1) // connects
	copies(1)
	b.ResetTimer()
	start := time.Now()
	all(b.N)
	took := time.Since(start)
	b.StopTimer()
	start = time.Now()
	copies(b.N)
	b.ReportMetric(float64(time.Since(start))/float64(took), "speed")
}

// Touch writes to all of data. Memory that was never written is a single page of zeros, which
// is faster to read than any other.
func Touch[T parallel.Element](data []T) {
	for i := range data {
		data[i] = T(i & 63)
	}
}
