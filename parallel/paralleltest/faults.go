package paralleltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
)

// Open returns the transports of n ranks, closed by the test's cleanup if not before.
type Open func(t testing.TB, n int) []parallel.Transport

// Ranks runs a function for every rank at the same time and returns their errors.
func Ranks(world []parallel.Transport, run func(parallel.Transport) error) []error {
	errs := make([]error, len(world))
	done := make(chan struct{})
	for i, t := range world {
		go func() {
			errs[i] = run(t)
			done <- struct{}{}
		}()
	}
	for range world {
		<-done
	}
	return errs
}

// Run tests a transport.
func Run(t *testing.T, open Open) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprintf("all operations, %d ranks", n), func(t *testing.T) {
			t.Parallel()
			large := 1_300_003 // several chunks for each rank
			if n > 3 {
				large = 20_011
			}
			world := open(t, n)
			for i, err := range Ranks(world,
				func(tr parallel.Transport) error { return Check(t.Context(), tr, large) }) {
				require.NoError(t, err, "rank %d", i)
			}
		})
	}
	for i, m := range []parallel.Mesh{{DP: 2, TP: 2, PP: 1}, {DP: 1, TP: 3, PP: 2}, {DP: 2, TP: 2, PP: 2},
		{DP: 3, TP: 1, PP: 2}} {
		t.Run(fmt.Sprintf("mesh %v", m), func(t *testing.T) {
			t.Parallel()
			world := open(t, m.Size())
			for r, err := range Ranks(world,
				func(tr parallel.Transport) error { return CheckMesh(t.Context(), tr, m, uint64(i), 30) }) {
				require.NoError(t, err, "rank %d", r)
			}
		})
	}
	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		faults(t, open)
	})
}

// faults makes rank 2 of 4 misbehave after a few good calls and requires all ranks to name the
// culprit.
func faults(t *testing.T, open Open) {
	sum := func(ctx context.Context, g *parallel.Group) error { return g.AllReduceSum(ctx, make([]int64, 1000)) }
	for _, row := range []struct {
		name    string
		bad     func(tr parallel.Transport, g *parallel.Group) error
		culprit []int
		want    string
	}{
		{"abort", func(tr parallel.Transport, _ *parallel.Group) error {
			tr.Abort(errors.New("loss is NaN"))
			return nil
		}, []int{2}, "rank 2.*: loss is NaN"},
		{"leave", func(tr parallel.Transport, _ *parallel.Group) error { return tr.Close() }, []int{2}, "rank 2"},
		{"other operation", func(_ parallel.Transport, g *parallel.Group) error {
			return g.Barrier(context.Background())
		}, []int{1, 2}, "expected"},
		{"other length", func(_ parallel.Transport, g *parallel.Group) error {
			return g.AllReduceSum(context.Background(), make([]int64, 500))
		}, []int{1, 2}, "message of all-reduce 3 is .* bytes, expected"},
		{"canceled", func(_ parallel.Transport, g *parallel.Group) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return sum(ctx, g)
		}, []int{2}, "rank 2.*: context canceled"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			errs := misbehave(open(t, 4), limit, func(g *parallel.Group) error { return sum(context.Background(), g) },
				row.bad)
			for i, err := range errs {
				if i == 2 && err == nil {
					continue // it knows
				}
				var rank *parallel.RankError
				require.ErrorAs(t, err, &rank, "rank %d", i)
				require.Contains(t, row.culprit, rank.Rank)
				require.Regexp(t, row.want, err.Error(), "rank %d", i)
			}
		})
	}
}

// Hang makes rank 2 of 4 stop calling and requires all others to name it after a limit.
func Hang(t *testing.T, world []parallel.Transport, limit time.Duration) {
	t.Helper()
	over := make(chan struct{})
	errs := make(chan []error)
	go func() {
		errs <- misbehave(world, limit, func(g *parallel.Group) error {
			return g.AllReduceSum(context.Background(), make([]int64, 1000))
		},
			func(parallel.Transport, *parallel.Group) error {
				<-over
				return nil
			})
	}()
	// Only the transport can end the other ranks' calls.
	probe, err := parallel.NewGroup(world[0], "probe", []int{0, 1}, 0)
	require.NoError(t, err)
	err = parallel.Recv(context.Background(), probe, 1, []byte{0})
	require.Error(t, err)
	close(over)
	for i, err := range append(<-errs, err) {
		if i == 2 {
			continue
		}
		var rank *parallel.RankError
		require.ErrorAs(t, err, &rank, "rank %d", i)
		require.Equal(t, 2, rank.Rank, "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("no message for %v in all-reduce over world", limit))
	}
}

// misbehave calls good three times on all ranks of a group of four, then bad on rank 2 and good on the
// others, and returns the errors.
func misbehave(
	world []parallel.Transport, limit time.Duration,
	good func(*parallel.Group) error, bad func(parallel.Transport, *parallel.Group) error,
) []error {
	return Ranks(world, func(tr parallel.Transport) error {
		g, err := parallel.NewGroup(tr, "world", []int{0, 1, 2, 3}, limit)
		if err != nil {
			return err
		}
		for range 3 {
			if err := good(g); err != nil {
				return err // rank 2 may be ahead
			}
		}
		if tr.Rank() == 2 {
			return bad(tr, g)
		}
		return good(g)
	})
}
