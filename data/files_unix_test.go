//go:build unix

package data

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe or a device is refused without being opened, which could block.
func TestNoPipesOrDevices(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe.jsonl")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{pipe: "is a pipe, expected a regular file",
		"/dev/zero": "is a device, expected a regular file"} {
		_, err := read(path, Options{})
		require.ErrorContains(t, err, want)
		_, err = Digest([]string{path})
		require.ErrorContains(t, err, want)
		_, err = Files([]string{path})
		require.ErrorContains(t, err, want)
	}
}
