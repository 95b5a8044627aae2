//go:build unix

package trainer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unlock, held, err := Lock(dir, false)
	require.NoError(t, err)
	require.False(t, held)
	unlock()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "it creates nothing without a run")
	_, held, err = Lock(filepath.Join(dir, "nowhere"), false)
	require.NoError(t, err)
	require.False(t, held)
	_, _, err = Lock(filepath.Join(dir, "nowhere"), true)
	require.ErrorIs(t, err, os.ErrNotExist)

	unlock, held, err = Lock(dir, true)
	require.NoError(t, err)
	require.True(t, held)
	for _, create := range []bool{true, false} {
		_, _, err = Lock(dir, create)
		require.ErrorIs(t, err, ErrLocked)
		require.EqualError(t, err, `run.dir "`+dir+
			`" is in use by another process. Wait for it to exit, or set another run.dir`)
	}
	unlock()
	for _, create := range []bool{true, false} {
		unlock, held, err = Lock(dir, create)
		require.NoError(t, err)
		require.True(t, held)
		unlock()
	}
}
