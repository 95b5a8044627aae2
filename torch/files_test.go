package torch

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/torch/fake"
	"github.com/easyrl/easyrl/torch/wire"
)

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
		require.Equal(t, 1, st.Kept())
	})
	for _, name := range []string{"model.safetensors", "trainer/optimizer.safetensors"} {
		require.FileExists(t, filepath.Join(saved, name))
	}
	cfg := configure(dir, into)
	cfg.State, cfg.Updates = saved, 2
	run(2, 3, 4, cfg, nothing, func(t *testing.T, st *stage) {
		require.NoError(t, st.Write(t.Context(), wire.Weights, weights))
	})
	requireClose(t, want, load(t, weights))
	again := t.TempDir()
	run(1, 3, 4, configure(dir, into), func(t *testing.T,
		st *stage) {
		require.NoError(t, st.Restore(t.Context(), saved, 2))
	},
		func(t *testing.T, st *stage) { require.NoError(t, st.Write(t.Context(), wire.Weights, again)) })
	require.Equal(t, want, load(t, again))
	require.NoDirExists(t, filepath.Join(into, "recovery"))
	_, err := os.Stat(filepath.Join(saved, "model.safetensors"))
	require.NoError(t, err)
}
