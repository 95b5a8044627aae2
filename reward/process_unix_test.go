//go:build unix

package reward

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/rollout"
)

// Killing a process also kills its children: none keeps the pipe open that a hanging
// program passed to its child.
func TestCommandKillsChildrenToo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "held")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	c := scoring(t, 1, "hang", path)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failure := make(chan error, 1)
	go func() {
		_, err := c.Score(ctx, input("1", "hang", rollout.Stop))
		failure <- err
	}()
	held, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	said := make([]byte, 4)
	_, err = io.ReadFull(held, said)
	require.NoError(t, err)
	require.Equal(t, "open", string(said))
	cancel()
	require.ErrorIs(t, <-failure, context.Canceled)
	rest, err := io.ReadAll(held) // ends when the last holder is dead
	require.NoError(t, err)
	require.Empty(t, rest)
	got, err := c.Score(t.Context(), input("1", "1", rollout.Stop))
	require.NoError(t, err)
	require.Equal(t, 1.0, got.Parts["asked"], "a new process")
}
