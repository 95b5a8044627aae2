package torch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

// pipes is a listener in memory, so that a test's clock is synctest's.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7000} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stage is a session in a test's bubble.
type stage struct {
	*Session
	warnings []string
	ranks    *fake.Ranks
	pipes    *pipes
	end      func()
}

// play opens a session with ranks in memory. The caller ends it.
func play(t *testing.T, cfg Config, ranks *fake.Ranks) (*stage, error) {
	t.Helper()
	st := &stage{ranks: ranks, pipes: newPipes()}
	cfg.Warn = func(format string, args ...any) { st.warnings = append(st.warnings, fmt.Sprintf(format, args...)) }
	ranks.Token, ranks.Dial = cfg.Token, st.pipes.dial
	if ranks.World == 0 {
		ranks.World = max(1, cfg.DP) * max(1, cfg.TP)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { ranks.Run(ctx) })
	var err error
	st.Session, err = open(t.Context(), cfg, st.pipes)
	st.end = func() {
		if st.Session != nil {
			st.Close()
		}
		cancel()
		running.Wait()
	}
	return st, err
}

// once fails at one moment of the first start.
func once(fault fake.Fault, rank int, kind string, count int) func(fake.Moment) fake.Fault {
	var mu sync.Mutex
	return func(at fake.Moment) fake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if at.Rank == rank && at.Kind == kind {
			if count--; count == 0 {
				return fault
			}
		}
		return fake.None
	}
}

// A fault changes no bit of the result with one rank: everything since the recovery point is
// repeated in order. The warning names the rank and the cause.
func TestFaultsChangeNothing(t *testing.T) {
	t.Parallel()
	const updates = 12
	want := expected(t, updates)
	for _, test := range []struct {
		fault fake.Fault
		kind  string
		count int
		cause string
	}{
		{fake.Die, "forward", 3, "closed its connection"},
		{fake.Die, "backward", 7, "closed its connection"},
		{fake.Die, "step", 2, "closed its connection"},
		{fake.Die, "write", 1, "closed its connection"},
		{fake.Hang, "forward", 8, "sent nothing for 10s"},
		{fake.Hang, "step", 4, "sent nothing for 10s"},
		{fake.Stall, "forward", 2, "forward: no answer within 10m0s"},
		{fake.Stall, "step", 11, "step: no answer within 10m0s"},
		{fake.Stall, "write", 1, "write state: no answer within 30m0s"},
		{fake.Lie, "forward", 5, "forward: id is 6, expected 5"},
		{fake.Lie, "backward", 5, "backward: id is 7, expected 5"},
		{fake.Lie, "step", 1, "step: update is 2, expected 1"},
		{fake.Fail, "backward", 50, "told to fail at backward of rank 0"},
		{fake.Fail, "step", 12, "told to fail at step of rank 0"},
	} {
		t.Run(fmt.Sprint(test.cause, test.count), func(t *testing.T) {
			dir, into, weights := start(t), t.TempDir(), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				st, err := play(t, configure(dir, into), &fake.Ranks{Fault: once(test.fault, 0, test.kind, test.count)})
				defer st.end()
				require.NoError(t, err)
				train(t, st, updates)
				require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
				require.Len(t, st.warnings, 1)
				require.True(t, strings.HasPrefix(st.warnings[0], `rank 0 on fake: `+test.cause), st.warnings[0])
			})
			require.Equal(t, want, load(t, weights))
		})
	}
}

// Random faults of random ranks: each micro-batch counts once, derive is called once, and the
// run ends with the weights of an undisturbed one.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	const updates = 3
	want := expected(t, updates)
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir, into, weights := start(t), t.TempDir(), t.TempDir()
			random := rand.New(rand.NewPCG(seed, 16))
			cfg := configure(dir, into)
			cfg.DP, cfg.TP = 1+random.IntN(3), 1+random.IntN(2)
			cfg.Mode = []string{wire.Free, wire.Lockstep}[random.IntN(2)]
			var mu sync.Mutex
			left := 1 + random.IntN(3)
			faults := 0
			next := 1 + random.IntN(20*cfg.DP)
			fault := func(fake.Moment) fake.Fault {
				mu.Lock()
				defer mu.Unlock()
				if next--; next > 0 || left == 0 {
					return fake.None
				}
				left--
				faults++
				next = 1 + random.IntN(25*cfg.DP)
				return []fake.Fault{fake.Die, fake.Hang, fake.Stall, fake.Lie, fake.Fail}[random.IntN(5)]
			}
			synctest.Test(t, func(t *testing.T) {
				st, err := play(t, cfg, &fake.Ranks{Fault: fault})
				defer st.end()
				if err != nil { // it failed at the first start, which is not repeated
					require.Empty(t, st.warnings)
					return
				}
				train(t, st, updates)
				require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
				require.LessOrEqual(t, len(st.warnings), faults)
				requireClose(t, want, load(t, weights))
			})
		})
	}
}

// A failure that repeats ends the run after three restarts, with the rank's error.
func TestRepeatedFailure(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		starts := 0
		st, err := play(t, configure(dir, into), &fake.Ranks{Fault: func(at fake.Moment) fake.Fault {
			if at.Kind == "welcome" {
				starts++
			}
			if at.Kind == "forward" && at.ID == 8 {
				return fake.Fail
			}
			return fake.None
		}})
		defer st.end()
		require.NoError(t, err)
		train(t, st, 1)
		var failed error
		for _, l := range batch(2) {
			if failed = st.Pass(t.Context(), l, func(lp backend.Logprobs) ([]float32, error) { return objective(lp), nil }); failed != nil {
				break
			}
		}
		if failed == nil {
			failed = st.Flush(t.Context())
		}
		require.EqualError(t, failed, `torch: rank 0 on fake: told to fail at forward of rank 0; restarted 3 times since update 1`)
		require.Equal(t, 4, starts)
		require.Len(t, st.warnings, 3)
		require.Equal(t, failed, st.Flush(t.Context()), "it stays")
		_, err = st.Step(t.Context(), backend.Update{Number: 2})
		require.Equal(t, failed, err)
	})
}

// Without all ranks a session does not start, and says which are missing.
func TestMissingRanks(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 3
		began := time.Now()
		p := newPipes()
		conn := make(chan net.Conn, 1)
		var running sync.WaitGroup
		running.Go(func() {
			c, _ := p.dial(t.Context())
			_ = wire.Send(c, wire.Hello{Token: cfg.Token, Rank: 1, World: 3, Host: "a"}, wire.Body{})
			conn <- c
			_ = beat(c)
		})
		_, err := open(t.Context(), cfg, p)
		require.EqualError(t, err, "torch: ranks 0, 2 of 3 not connected to 127.0.0.1:7000 within 10m0s")
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.NoError(t, (<-conn).Close())
		running.Wait()
	})
}

// beat sends beats and reads everything until the connection ends.
func beat(c net.Conn) error {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	for {
		if err := wire.Send(c, wire.Beat{}, wire.Body{}); err != nil {
			return err
		}
		<-time.After(time.Second)
	}
}

// Strangers are refused with a reason, and do not disturb the run.
func TestStrangers(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		answer := func(send func(c net.Conn)) string {
			c, err := st.pipes.dial(t.Context())
			require.NoError(t, err)
			defer c.Close() //nolint:errcheck // a pipe
			go send(c)
			f, err := wire.Read(c, wire.AtMost(0))
			var refused wire.Refused
			if err != nil || f.Decode(&refused) != nil {
				return fmt.Sprint(err)
			}
			return refused.Error
		}
		hello := func(h wire.Hello) func(c net.Conn) {
			return func(c net.Conn) { _ = wire.Send(c, h, wire.Body{}) }
		}
		require.Equal(t, "all ranks are connected", answer(hello(wire.Hello{Token: "secret", World: 1})))
		require.Contains(t, answer(func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }), `magic is "GET "`)
		require.Contains(t, answer(func(net.Conn) {}), "i/o timeout")
		require.Contains(t, answer(func(c net.Conn) { _ = wire.Send(c, wire.Beat{}, wire.Body{}) }), `kind is "beat", expected "hello"`)
		train(t, st, 1)
		require.Empty(t, st.warnings)
	})
}

// While ranks are gathered, those of another session or token are refused.
func TestRefusedHellos(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 2
		p := newPipes()
		result := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := open(ctx, cfg, p)
			result <- err
		}()
		var conns []net.Conn
		answer := func(h wire.Hello) string {
			c, err := p.dial(t.Context())
			require.NoError(t, err)
			conns = append(conns, c)
			require.NoError(t, wire.Send(c, h, wire.Body{}))
			f, err := wire.Read(c, wire.AtMost(0))
			require.NoError(t, err)
			var refused wire.Refused
			if f.Decode(&refused) != nil {
				return f.Kind
			}
			return refused.Error
		}
		require.Equal(t, "the token is wrong", answer(wire.Hello{Token: "secreT", World: 2}))
		require.Equal(t, "world is 3 ranks, expected 2", answer(wire.Hello{Token: "secret", World: 3}))
		require.Equal(t, "rank is 2, expected 0 to 1", answer(wire.Hello{Token: "secret", World: 2, Rank: 2}))
		require.Equal(t, "rank is -1, expected 0 to 1", answer(wire.Hello{Token: "secret", World: 2, Rank: -1}))
		require.Equal(t, "beat", answer(wire.Hello{Token: "secret", World: 2, Rank: 1}))
		require.Equal(t, "the rank is taken", answer(wire.Hello{Token: "secret", World: 2, Rank: 1}))
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// The error of a derive is returned until Discard; the update then begins again.
func TestDiscard(t *testing.T) {
	t.Parallel()
	want := expected(t, 2)
	for _, mode := range []string{wire.Free, wire.Lockstep} {
		dir, into, weights := start(t), t.TempDir(), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			cfg := configure(dir, into)
			cfg.DP, cfg.Mode = 2, mode
			st, err := play(t, cfg, &fake.Ranks{})
			defer st.end()
			require.NoError(t, err)
			train(t, st, 1)
			doubt := errors.New("doubt")
			calls := 0
			failed := error(nil)
			for _, l := range batch(9) {
				err := st.Pass(t.Context(), l, func(lp backend.Logprobs) ([]float32, error) {
					if calls++; calls == 2 {
						return nil, doubt
					}
					return objective(lp), nil
				})
				if err != nil {
					failed = err
				}
			}
			if failed == nil {
				failed = st.Flush(t.Context())
			}
			require.Equal(t, doubt, failed)
			require.Equal(t, doubt, st.Flush(t.Context()))
			require.Equal(t, doubt, st.Pass(t.Context(), batch(1)[0], nil))
			require.Equal(t, 2, calls)
			st.Discard()
			advance(t, st, 2)
			require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
			require.Empty(t, st.warnings)
		})
		requireClose(t, want, load(t, weights))
	}
}

// A gradient that is not finite changes nothing; weights that are not finite are reported.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	want := expected(t, 2)
	dir, into, weights := start(t), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		train(t, st, 1)
		require.NoError(t, st.Pass(t.Context(), batch(2)[0], func(lp backend.Logprobs) ([]float32, error) {
			out := objective(lp)
			out[0] = float32(math.NaN())
			return out, nil
		}))
		_, err = st.Step(t.Context(), backend.Update{Number: 2, Scale: 1, LR: 1e-2, Clip: 0.5})
		require.ErrorIs(t, err, optim.ErrNonFinite)
		require.NoError(t, st.CheckFinite())
		require.NoError(t, st.Pass(t.Context(), batch(2)[0], func(lp backend.Logprobs) ([]float32, error) { return objective(lp), nil }))
		_, err = st.Step(t.Context(), backend.Update{Number: 2, Scale: math.Inf(1), LR: 1e-2})
		require.ErrorIs(t, err, optim.ErrNonFinite)
		advance(t, st, 2)
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		require.NoError(t, st.Pass(t.Context(), batch(2)[0], func(lp backend.Logprobs) ([]float32, error) { return objective(lp), nil }))
		_, err = st.Step(t.Context(), backend.Update{Number: 3, Scale: 1, LR: math.MaxFloat32, Clip: 0.5})
		require.NoError(t, err)
		require.ErrorContains(t, st.CheckFinite(), "weights after update 3: ")
		require.Empty(t, st.warnings)
	})
	require.Equal(t, want, load(t, weights))
}

// A derive may score other layouts, also while ranks fail.
func TestScoreWithinDerive(t *testing.T) {
	t.Parallel()
	want := expected(t, 1)
	dir, into, weights := start(t), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{Fault: once(fake.Die, 0, "score", 2)})
		defer st.end()
		require.NoError(t, err)
		for _, l := range batch(1) {
			require.NoError(t, st.Pass(t.Context(), l, func(lp backend.Logprobs) ([]float32, error) {
				scores, err := st.Score(t.Context(), l)
				require.NoError(t, err)
				require.Equal(t, lp.Policy, scores)
				return objective(lp), nil
			}))
		}
		_, err = st.Step(t.Context(), backend.Update{Number: 1, Scale: 0.05, LR: 1e-2, Clip: 0.5})
		require.NoError(t, err)
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		require.Len(t, st.warnings, 1)
	})
	require.Equal(t, want, load(t, weights))
}

// The log-probabilities are also the old policy's until the first update after a publish.
func TestOldPolicy(t *testing.T) {
	t.Parallel()
	dir, into, weights := start(t), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		old := func() (of backend.Logprobs) {
			require.NoError(t, st.Pass(t.Context(), batch(1)[0], func(lp backend.Logprobs) ([]float32, error) {
				of = lp
				return objective(lp), nil
			}))
			require.NoError(t, st.Flush(t.Context()))
			return of
		}
		require.Nil(t, old().Old)
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		lp := old()
		require.Equal(t, lp.Policy, lp.Old)
		require.Equal(t, lp.Policy, lp.Recomputed)
		require.Equal(t, lp.Policy, lp.Reference)
		_, err = st.Step(t.Context(), backend.Update{Number: 1, Scale: 1, LR: 1e-2, Clip: 0.5})
		require.NoError(t, err)
		lp = old()
		require.Nil(t, lp.Old)
		require.Nil(t, lp.Recomputed)
		require.NotEqual(t, lp.Policy, lp.Reference)
		var none attention.Layout
		require.NoError(t, st.Pass(t.Context(), &none, func(backend.Logprobs) ([]float32, error) { return nil, nil }))
	})
}

// A checkpoint continues with another number of ranks.
func TestCapture(t *testing.T) {
	t.Parallel()
	want := expected(t, 4)
	dir, into, saved, weights := start(t), t.TempDir(), t.TempDir(), t.TempDir()
	run := func(dp, from, to int, cfg Config, before, after func(t *testing.T, st *stage)) {
		synctest.Test(t, func(t *testing.T) {
			cfg.DP = dp
			st, err := play(t, cfg, &fake.Ranks{})
			defer st.end()
			require.NoError(t, err)
			before(t, st)
			for n := from; n <= to; n++ {
				advance(t, st, n)
			}
			after(t, st)
			require.Empty(t, st.warnings)
		})
	}
	nothing := func(*testing.T, *stage) {}
	run(1, 1, 2, configure(dir, into), nothing, func(t *testing.T, st *stage) {
		move, err := st.Capture(t.Context())
		require.NoError(t, err)
		advance(t, st.Session, 3) // the checkpoint does not change
		require.NoError(t, move(saved))
		require.Len(t, st.past, 1)
	})
	for _, name := range []string{"model.safetensors", "trainer/optimizer.safetensors"} {
		require.FileExists(t, filepath.Join(saved, name))
	}
	cfg := configure(dir, into)
	cfg.State, cfg.Updates = saved, 2
	run(2, 3, 4, cfg, nothing, func(t *testing.T, st *stage) { require.NoError(t, st.Write(t.Context(), wire.Weights, weights)) })
	requireClose(t, want, load(t, weights))
	again := t.TempDir()
	run(1, 3, 4, configure(dir, into), func(t *testing.T, st *stage) { require.NoError(t, st.Restore(t.Context(), saved, 2)) },
		func(t *testing.T, st *stage) { require.NoError(t, st.Write(t.Context(), wire.Weights, again)) })
	require.Equal(t, want, load(t, again))
	require.NoDirExists(t, filepath.Join(into, "recovery"))
	_, err := os.Stat(filepath.Join(saved, "model.safetensors"))
	require.NoError(t, err)
}

// A session describes its ranks and what they hold.
func TestRanks(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 2
		st, err := play(t, cfg, &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		ranks := st.Ranks()
		require.Len(t, ranks, 2)
		require.Equal(t, 1, ranks[1].Hello.Rank)
		require.Empty(t, ranks[1].Hello.Token)
		n := 4 * ranks[0].Ready.Parameters
		require.Equal(t, [npu.NumPurposes]int64{npu.Weights: 2 * n, npu.Gradients: 2 * n, npu.Optimizer: 4 * n}, st.Allocated())
		advance(t, st, 1)
		require.Positive(t, st.Allocated()[npu.Activations])
		require.Equal(t, 64, st.MaxPositions())
		var l attention.Layout
		root := l.Add(-1, make([]int32, 4), false)
		l.AddLeaf(root, make([]int32, 3)) // two rows after four
		l.AddLeaf(root, make([]int32, 1)) // no row
		keys := float64(1+2+3+4) + 5 + 6
		require.Equal(t, 6*6.0+4*4+2*keys, st.FLOPs(&l))
	})
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{DP: -1})
	require.ErrorContains(t, err, "dp")
	require.ErrorContains(t, err, "token is empty, expected the one that ranks send")
	require.ErrorContains(t, err, `model is "" and dir ""`)
	_, err = Open(t.Context(), Config{Listen: "nowhere"})
	require.ErrorContains(t, err, "torch: listen for ranks: ")
}

// The end of a session within a derive is not repeated.
func TestEndWithinDerive(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{Fault: func(at fake.Moment) fake.Fault {
			if at.Kind == "score" {
				return fake.Fail
			}
			return fake.None
		}})
		defer st.end()
		require.NoError(t, err)
		calls := 0
		err = st.Pass(t.Context(), batch(1)[0], func(backend.Logprobs) ([]float32, error) {
			calls++
			_, err := st.Score(t.Context(), batch(1)[1])
			return nil, err
		})
		if err == nil {
			err = st.Flush(t.Context())
		}
		require.EqualError(t, err, "torch: rank 0 on fake: told to fail at score of rank 0; restarted 3 times since update 0")
		require.Equal(t, 1, calls)
		require.Len(t, st.warnings, 3)
		require.Contains(t, st.warnings[0], "; waiting for all ranks to connect again, from update 0 (1 of 3)")
	})
}
