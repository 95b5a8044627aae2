package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNear(t *testing.T) {
	t.Parallel()
	known := []string{"train", "eval", "sft", "check", "report", "group_size"}
	for word, want := range map[string]string{"trian": "train", "tain": "train", "TRAIN": "train", "reprt": "report",
		"rep": "report", "sf": "sft",
		"Group-Size": "group_size", "grop_size": "group_size", "groupsizes": "group_size"} {
		near, ok := Near(word, known)
		require.True(t, ok, word)
		require.Equal(t, want, near, word)
	}
	for _, word := range []string{"", "x", "-", "s", "xyz", "evaluate_model", "size", "trout", "group_by_length",
		strings.Repeat("é", 1<<24)} {
		near, ok := Near(word, known)
		require.False(t, ok, "%.20s is near %s", word, near)
	}
	require.Equal(t, 1, distance("ab", "ba"))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 2, distance("", "éé"))
}
