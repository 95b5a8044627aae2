package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), WarningsFile)
	none, err := ReadWarnings(path)
	require.NoError(t, err)
	require.Empty(t, none)

	all := []Warning{{Step: 3, Kind: "idle", Text: "the trainer waits > 60%"},
		{Step: 9, Kind: "entropy", Text: "\"collapses\"\nnow"}}
	require.NoError(t, WriteWarnings(path, all))
	require.Equal(t, `{"step":3,"kind":"idle","text":"the trainer waits > 60%"}`+"\n"+
		`{"step":9,"kind":"entropy","text":"\"collapses\"\nnow"}`+"\n", readFile(t, path))
	back, err := ReadWarnings(path)
	require.NoError(t, err)
	require.Equal(t, all, back)

	require.NoError(t, WriteWarnings(path, all[:1]))
	back, err = ReadWarnings(path)
	require.NoError(t, err)
	require.Equal(t, all[:1], back)
}

func TestWarningsRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, WarningsFile)
	require.NoError(t, os.WriteFile(path, []byte("{\"step\":1}\nnonsense\n"), 0o644))
	_, err := ReadWarnings(path)
	require.ErrorContains(t, err, path+":2:")
	_, err = ReadWarnings(dir)
	require.ErrorContains(t, err, "read warnings")
	require.ErrorContains(t, WriteWarnings(filepath.Join(dir, "none", WarningsFile), nil), "write warnings")
}
