package compare

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
)

// The comparison's files are shared, so that they have no secrets of a failed run.
func TestFailuresHideSecrets(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	o.Modes = []string{configs.Sync, configs.Colocated}
	m := &machine{t: t, stopsAt: 2}
	o.Train = func(ctx context.Context, cores int, args []string) error {
		if err := m.train(ctx, cores, args); err != nil {
			return fmt.Errorf("score at http://ann:hunter2@judge/v1?key=hunter2: %w", err)
		}
		return nil
	}
	c, err := Run(t.Context(), o)
	require.ErrorContains(t, err, "stopped")
	require.Equal(t, []Failure{{"colocated", "colocated", "score at http://***@judge/v1?***: stopped"}}, c.Failed)
	for _, name := range []string{File, PageFile} {
		text, err := os.ReadFile(filepath.Join(o.Dir, name))
		require.NoError(t, err)
		require.Contains(t, string(text), "judge/v1")
		require.NotContains(t, string(text), "hunter2", name)
	}
}
