package torch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

// A caller that waits for Ready and polls finishes all micro-batches, also incomplete rounds
// and those of a rank that stalls.
func TestReady(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{wire.Free, wire.Lockstep} {
		for _, fault := range []fake.Fault{fake.None, fake.Die, fake.Stall} {
			dir, into := start(t), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cfg := configure(dir, into)
				cfg.DP, cfg.Mode = 2, mode
				st, err := play(t, cfg, &fake.Ranks{Fault: once(fault, 1, "forward", 2)})
				defer st.end()
				require.NoError(t, err)
				derived := 0
				for _, l := range batch(1) {
					require.NoError(t, st.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) {
						derived++
						return objective(lp), nil
					}))
				}
				for derived < len(batch(1)) {
					<-st.Ready()
					require.NoError(t, st.Poll(t.Context()))
				}
				require.NoError(t, st.Flush(t.Context()))
				require.Equal(t, len(batch(1)), derived)
				if fault != fake.None {
					require.Len(t, st.warnings, 1)
				}
			})
		}
	}
}

// A cancelled call returns; a later one continues.
func TestCancel(t *testing.T) {
	t.Parallel()
	want := expected(t, 2)
	dir, into, weights := start(t), t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{Fault: once(fake.Stall, 0, "backward", 7)})
		defer st.end()
		require.NoError(t, err)
		train(t, st, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		derived := 0
		var failed error
		for _, l := range batch(2) {
			pass := st.Pass(ctx, l, func(lp backend.Outputs) (backend.Values, error) {
				derived++
				return objective(lp), nil
			})
			if pass != nil {
				failed = pass
			}
		}
		require.ErrorIs(t, failed, context.DeadlineExceeded)
		require.NoError(t, st.Flush(t.Context()))
		require.Equal(t, len(batch(2)), derived)
		_, err = st.Step(t.Context(), backend.Update{Number: 2, Scale: 0.05, LR: 1e-2, Clip: 0.5})
		require.NoError(t, err)
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		require.Len(t, st.warnings, 1)
	})
	require.Equal(t, want, load(t, weights))
}

// Ranks end with the run. Without its end they start again.
func TestEnd(t *testing.T) {
	t.Parallel()
	for _, final := range []bool{false, true} {
		dir, into := start(t), t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			st, err := play(t, configure(dir, into), &fake.Ranks{})
			defer st.end()
			require.NoError(t, err)
			train(t, st, 1)
			if final {
				st.End()
			}
			st.Close()
			<-time.After(time.Second)
			require.Equal(t, final, len(st.ranks.Received()[0]) > 0, "a start clears the list")
		})
	}
}
