package paths

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHint(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("runs", 0o755))
	require.NoError(t, os.WriteFile("runs/data.jsonl", nil, 0o600))
	at := "; paths are relative to the working directory " + dir
	for _, test := range []struct{ path, beside, want string }{
		{"data.jsonl", "", at},
		{"data.jsonl", "runs/run.toml", "; paths are relative to the working directory, so write runs/data.jsonl"},
		{"other.jsonl", "runs/run.toml", at},
		{"../data.jsonl", "run.toml", at},
		{"~/data.jsonl", "", "; ~ is not expanded: write the whole path"},
		{"$HOME/data.jsonl", "", "; variables are not expanded: write the whole path"},
		{"/none/data.jsonl", "", ""},
		{"", "", ""},
	} {
		require.Equal(t, test.want, Hint(test.path, test.beside), test.path)
	}
	require.Equal(t, "a does not exist"+at, Missing("a"))
	require.True(t, IsFile("runs/data.jsonl"))
	require.False(t, IsFile("runs"))
	require.Equal(t, filepath.Join(dir, "a"), Absolute("a"))
}

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	_, err := os.Open("none.jsonl")
	require.EqualError(t, Explain(err),
		"open none.jsonl: no such file or directory; paths are relative to the working directory "+dir)
	require.ErrorIs(t, Explain(err), os.ErrNotExist)
	_, err = os.Open("/none.jsonl")
	require.Equal(t, err, Explain(err))
	other := errors.New("other")
	require.Equal(t, other, Explain(other))
	require.NoError(t, Explain(nil))
}
