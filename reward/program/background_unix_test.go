//go:build unix

package program

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Kill ends a program and what it has started. Its environment has the given variables, and
// its output is in the file.
func TestBackground(t *testing.T) {
	t.Parallel()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	b, err := Launch([]string{"sh", "-c", "sleep 1000 & echo $WHAT $!; wait"}, []string{"WHAT=child"}, output)
	require.NoError(t, err)
	var child int
	for child == 0 { // until it has written
		content, err := os.ReadFile(output.Name())
		require.NoError(t, err)
		if text, ok := strings.CutPrefix(string(content), "child "); ok && strings.Contains(text, "\n") {
			child, err = strconv.Atoi(strings.Fields(text)[0])
			require.NoError(t, err)
		}
	}
	require.NoError(t, syscall.Kill(child, 0))
	b.Kill()
	<-b.Done()
	require.Error(t, syscall.Kill(child, 0))
	require.NoError(t, output.Close())
}

func TestBackgroundEnds(t *testing.T) {
	t.Parallel()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	require.NoError(t, err)
	b, err := Launch([]string{"sh", "-c", "exit 3"}, nil, output)
	require.NoError(t, err)
	<-b.Done()
	require.ErrorContains(t, b.Err(), "exit status 3")
	b.Kill()
	require.NoError(t, output.Close())
}
