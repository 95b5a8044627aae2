package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/parallel"
)

// die ends a rank's part of a world as the death of its process does: without a word.
func die(w *World) {
	w.mu.Lock()
	for _, l := range w.links {
		_ = l.conn.Conn.Close()
	}
	w.endLife()
	w.mu.Unlock()
	_ = w.Close()
}

// After ranks other than 0 have died at random moments, those that are left and those that replace the dead open
// another world at the same address, in which everything works. Each survivor knows that a rank was lost.
func TestWorldsFollow(t *testing.T) {
	t.Parallel()
	seeds := uint64(12)
	if os.Getenv("EASYRL_SOAK") != "" {
		seeds = 300
	}
	for seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 5))
			const rounds = 5
			n := 2 + random.IntN(4)
			type death struct{ rank, round int }
			deaths := make([]death, 1+random.IntN(3)) // the n-th ends the n-th world
			for i := range deaths {
				deaths[i] = death{1 + random.IntN(n-1), random.IntN(rounds)}
			}
			cfg := Config{Size: n, Master: porttest.Address(t), Token: []byte(secret), Run: t.Name(), Join: time.Minute}
			// run takes part in a world. It returns true if the rank died, and the error with which its world ended.
			run := func(rank, world int) (died bool, err error) {
				cfg := cfg
				cfg.Rank = rank
				w, err := Open(context.Background(), cfg)
				if err != nil {
					return false, err
				}
				all := make([]int, n)
				for i := range all {
					all[i] = i
				}
				g, err := parallel.NewGroup(w, "all", all, 0)
				for round := 0; err == nil && round < rounds; round++ {
					if world < len(deaths) && deaths[world] == (death{rank, round}) {
						die(w)
						return true, nil
					}
					sum := []int64{int64(rank + 1), int64(world)}
					if err = g.AllReduceSum(context.Background(), sum); err == nil &&
						(sum[0] != int64(n*(n+1)/2) || sum[1] != int64(n*world)) {
						err = fmt.Errorf("sum is %v in world %d", sum, world)
					}
				}
				return false, errors.Join(err, w.Close())
			}
			errs := make([]error, n)
			var ranks sync.WaitGroup
			for rank := range n {
				ranks.Go(func() {
					for world := 0; world <= len(deaths); world++ {
						died, err := run(rank, world)
						last := world == len(deaths)
						var lost *parallel.RankError
						switch {
						case died:
						case errors.As(err, &lost) && lost.Lost && !last && lost.Rank == deaths[world].rank:
						case err != nil || !last:
							errs[rank] = fmt.Errorf("world %d: %w", world, err)
							return
						}
					}
				})
			}
			ranks.Wait()
			require.NoError(t, errors.Join(errs...))
		})
	}
}

// Rank 0 waits for an address that another socket is about to leave.
func TestAddressIsFreedSoon(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := Config{Size: 2, Master: l.Addr().String(), Token: []byte(secret), Run: t.Name(), Join: time.Minute}
	var joining sync.WaitGroup
	var errs [2]error
	for rank := range errs {
		joining.Go(func() {
			cfg := cfg
			cfg.Rank = rank
			var w *World
			if w, errs[rank] = Open(context.Background(), cfg); errs[rank] == nil {
				errs[rank] = w.Close()
			}
		})
	}
	<-time.After(retry + retry/2)
	require.NoError(t, l.Close())
	joining.Wait()
	require.NoError(t, errors.Join(errs[:]...))
}

// Open fails with the cause that cancelled its context, also if a connection attempt was cancelled with it.
func TestJoinEndsWithCause(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	for rank := range 2 {
		_, err := Open(ctx, Config{Rank: rank, Size: 2, Master: porttest.Address(t), Token: []byte(secret), Run: "run"})
		require.ErrorIs(t, err, stopped)
		require.NotErrorIs(t, err, context.Canceled)
	}
}

// A rank of a world that has ended cannot send to the one that follows it. A rank that joins while a world ends tries
// again. One that waits for a rank 0 that is gone gives up.
func TestWorldsAreApart(t *testing.T) {
	t.Parallel()
	said := newNotes()
	cfg := Config{Size: 2, Master: porttest.Address(t), Token: []byte(secret), Run: t.Name(), Join: time.Minute,
		Warn: said.warn}
	start := func() (worlds [2]*World) {
		var joining sync.WaitGroup
		for i := range worlds {
			joining.Go(func() {
				cfg := cfg
				cfg.Rank = i
				worlds[i], _ = Open(context.Background(), cfg)
			})
		}
		joining.Wait()
		require.NotNil(t, worlds[0])
		require.NotNil(t, worlds[1])
		return worlds
	}
	first := start()
	old := first[1].tickets[0]
	for _, w := range first {
		require.NoError(t, w.Close())
	}
	second := start()
	require.NotEqual(t, old, second[1].tickets[0])
	for ticket, want := range map[string]string{old: `refused: "rank 1 is in a world that has ended"`,
		second[0].ticket: ""} {
		raw, err := net.Dial("tcp", cfg.Master) //nolint:noctx // only a test
		require.NoError(t, err)
		h := hello{Rank: 1, Size: 2, Run: cfg.Run, Channel: "x" + ticket, Ticket: ticket}
		err = newConn(raw).connectHandshake(cfg.withDefaults().Token, h, deadline(t))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, raw.Close())
	}
	second[0].mu.Lock()
	second[0].endLife()
	second[0].mu.Unlock()
	_, err := second[0].register(hello{Rank: 1, Size: 2, Addr: "127.0.0.1:1", Ticket: old}, nil)
	require.ErrorIs(t, err, net.ErrClosed, "no refusal")
	for _, w := range second {
		require.NoError(t, w.Close())
	}
	cfg.Rank, cfg.Listens = 1, time.Millisecond
	_, err = Open(t.Context(), cfg)
	require.ErrorContains(t, err, "rank 0 has not listened within 1ms")
}

// A rank that is lost when all have just joined does not make Open fail: the others find out in their first call.
func TestLostWhenComplete(t *testing.T) {
	t.Parallel()
	for range 64 { // a select takes either case
		w := newWorld(Config{Size: 2, Rank: 1, Master: "127.0.0.1:1"}.withDefaults())
		close(w.ready)
		w.mu.Lock()
		w.setVerdict(1, errors.New("gone"), true)
		w.mu.Unlock()
		require.NoError(t, w.assemble(t.Context()))
		var lost *parallel.RankError
		require.ErrorAs(t, w.verdict(), &lost)
		require.True(t, lost.Lost)
	}
}
