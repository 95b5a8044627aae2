package torch

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

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
			refused := errors.New("refused")
			calls := 0
			failed := error(nil)
			for _, l := range batch(9) {
				err := st.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) {
					if calls++; calls == 2 {
						return nil, refused
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
			require.Equal(t, refused, failed)
			require.Equal(t, refused, st.Flush(t.Context()))
			require.Equal(t, refused, st.Pass(t.Context(), batch(1)[0], nil))
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
		require.NoError(t, st.Pass(t.Context(), batch(2)[0], func(lp backend.Outputs) (backend.Values, error) {
			out := objective(lp)
			out[backend.Policy][0] = float32(math.NaN())
			return out, nil
		}))
		_, err = st.Step(t.Context(), backend.Update{Number: 2, Scale: 1, LR: 1e-2, Clip: 0.5})
		require.ErrorIs(t, err, optim.ErrNonFinite)
		require.NoError(t, st.CheckFinite())
		require.NoError(t, st.Pass(t.Context(), batch(2)[0],
			func(lp backend.Outputs) (backend.Values, error) { return objective(lp), nil }))
		_, err = st.Step(t.Context(), backend.Update{Number: 2, Scale: math.Inf(1), LR: 1e-2})
		require.ErrorIs(t, err, optim.ErrNonFinite)
		advance(t, st, 2)
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		require.NoError(t, st.Pass(t.Context(), batch(2)[0],
			func(lp backend.Outputs) (backend.Values, error) { return objective(lp), nil }))
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
			require.NoError(t, st.Pass(t.Context(), l, func(lp backend.Outputs) (backend.Values, error) {
				scores, err := st.Score(t.Context(), l)
				require.NoError(t, err)
				require.Equal(t, lp.Values[backend.Policy], scores)
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
		old := func() (of backend.Outputs) {
			require.NoError(t, st.Pass(t.Context(), batch(1)[0], func(lp backend.Outputs) (backend.Values, error) {
				of = lp
				return objective(lp), nil
			}))
			require.NoError(t, st.Flush(t.Context()))
			return of
		}
		require.Nil(t, old().Values[backend.OldPolicy])
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
		lp := old()
		require.Equal(t, lp.Values[backend.Policy], lp.Values[backend.OldPolicy])
		require.Equal(t, lp.Values[backend.Policy], lp.Values[backend.Sampler])
		require.Equal(t, lp.Values[backend.Policy], lp.Values[backend.Reference])
		_, err = st.Step(t.Context(), backend.Update{Number: 1, Scale: 1, LR: 1e-2, Clip: 0.5})
		require.NoError(t, err)
		lp = old()
		require.Nil(t, lp.Values[backend.OldPolicy])
		require.Nil(t, lp.Values[backend.Sampler])
		require.NotEqual(t, lp.Values[backend.Policy], lp.Values[backend.Reference])
		var none attention.Layout
		require.NoError(t, st.Pass(t.Context(), &none,
			func(backend.Outputs) (backend.Values, error) { return nil, nil }))
	})
}
