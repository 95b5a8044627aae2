package program

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var end tail
	require.Empty(t, end.lastLine())
	_, err := end.Write([]byte("first\nsecond\n\n"))
	require.NoError(t, err)
	require.Equal(t, "second", end.lastLine())
	for range 10 {
		_, err = end.Write([]byte(strings.Repeat("z", maxTail-1) + "\n"))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(end.end), maxTail)
	require.Equal(t, strings.Repeat("z", maxQuote)+"…", end.lastLine())
}
