//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/trainer"
)

// Two processes cannot share a run's folder. The second one changes nothing in it.
func TestOneProcessPerRun(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for _, resume := range []bool{false, true} {
		run := filepath.Join(dir, fmt.Sprint("run-", resume))
		require.NoError(t, os.Mkdir(run, 0o755))
		unlock, held, err := trainer.Lock(run, true)
		require.NoError(t, err)
		require.True(t, held)
		args := []string{"train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run), "-set",
			"run.steps=1"}
		if resume {
			args = append(args, "-resume")
		}
		status, _, stderr := command(t, args...)
		require.Equal(t, 2, status)
		require.Equal(t, "error: run.dir \""+run+
			"\" is in use by another process. Wait for it to exit, or set another run.dir\n", stderr)
		entries, err := os.ReadDir(run)
		require.NoError(t, err)
		require.Len(t, entries, 1, "only the lock")
		unlock()
		status, _, stderr = command(t, args...)
		require.Zero(t, status, stderr)
	}
}
