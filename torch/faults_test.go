package torch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

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
				if err != nil { // a rank failed at the first start in a way that is not repeated
					require.LessOrEqual(t, len(st.warnings), faults-1)
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
			if failed = st.Pass(t.Context(), l,
				func(lp backend.Outputs) (backend.Values, error) { return objective(lp), nil }); failed != nil {
				break
			}
		}
		if failed == nil {
			failed = st.Flush(t.Context())
		}
		require.EqualError(t, failed,
			`torch: rank 0 on fake: told to fail at forward of rank 0; restarted 3 times since update 1`)
		require.Equal(t, 4, starts)
		require.Len(t, st.warnings, 3)
		require.Equal(t, failed, st.Flush(t.Context()), "it stays")
		_, err = st.Step(t.Context(), backend.Update{Number: 2})
		require.Equal(t, failed, err)
	})
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
		err = st.Pass(t.Context(), batch(1)[0], func(backend.Outputs) (backend.Values, error) {
			calls++
			_, err := st.Score(t.Context(), batch(1)[1])
			return nil, err
		})
		if err == nil {
			err = st.Flush(t.Context())
		}
		require.EqualError(t, err,
			"torch: rank 0 on fake: told to fail at score of rank 0; restarted 3 times since update 0")
		require.Equal(t, 1, calls)
		require.Len(t, st.warnings, 3)
		require.Contains(t, st.warnings[0], "; waiting for all ranks to connect again, from update 0 (1 of 3)")
	})
}
