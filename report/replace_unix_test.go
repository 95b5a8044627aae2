//go:build unix

package report

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new file has the permissions that the umask leaves it; an existing one keeps its own.
func TestReplaceRespectsTheUmask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, fresh := filepath.Join(dir, "kept"), filepath.Join(dir, "fresh")
	require.NoError(t, os.WriteFile(kept, []byte("old"), 0o600))
	for _, path := range []string{kept, fresh} {
		require.NoError(t, ReplaceFile(path, []byte("new")))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "new", string(data))
	}
	like := filepath.Join(dir, "like")
	require.NoError(t, exec.Command("touch", like).Run())
	want, err := os.Stat(like)
	require.NoError(t, err)
	got, err := os.Stat(fresh)
	require.NoError(t, err)
	require.Equal(t, want.Mode()&0o644, got.Mode())
	got, err = os.Stat(kept)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), got.Mode())

	require.ErrorIs(t, Replace(kept, func(io.Writer) error { return errors.ErrUnsupported }), errors.ErrUnsupported)
	data, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "no temporary file remains")
}

// Only the owner can read a private file, even if others could read the one that it replaces.
func TestReplacePrivateFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, fresh := filepath.Join(dir, "kept"), filepath.Join(dir, "fresh")
	require.NoError(t, os.WriteFile(kept, []byte("old"), 0o644))
	for _, path := range []string{kept, fresh} {
		require.NoError(t, ReplacePrivateFile(path, []byte("new")))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "new", string(data))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
}
