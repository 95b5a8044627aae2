//go:build unix

package membership

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The paths of servers' URLs may hold secrets, which a resumed run needs.
func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	const url = "http://a:1/hook/vR7kQ2mXz9LpW4tNb8Yc"
	dir := t.TempDir()
	path := filepath.Join(dir, "instances.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"taken_out":["http://b:1"]}`), 0o644))
	state, err := openState(dir, nil)
	require.NoError(t, err)
	state.setRemoved(url, true)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	again, err := openState(dir, nil)
	require.NoError(t, err)
	require.True(t, again.isRemoved(url))
	require.True(t, again.isRemoved("http://b:1"))
}
