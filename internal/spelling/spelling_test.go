package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"train", "eval", "sft", "check", "report"}
	for word, want := range map[string]string{"trian": "train", "tain": "train", "TRAIN": "train", "evla": "eval", "rep": "report", "sf": "sft", "": "sft"} {
		require.Equal(t, want, Nearest(word, known), word)
	}
	require.Contains(t, known, Nearest(strings.Repeat("é", 1<<24), known), "a very long word is fast")
	require.Equal(t, 1, slips("ab", "ba"))
	require.Equal(t, 3, slips("kitten", "sitting"))
	require.Equal(t, 2, slips("", "éé"))
}
