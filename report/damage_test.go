package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]map[string]string{
		"a.jsonl": {"{}\n": "", "{}\n{}": "", "{}\n{\"a\":": ": the last line is cut off; skipped it",
			"{}\n\x00\x00": ": the last line is cut off; skipped it", "": " is empty; skipped it"},
		"a.json": {"{}\n": "", "{}": "", "{\"a\":": " is damaged; skipped it", "{}\n\x00": " is damaged; skipped it",
			"": " is empty; skipped it"},
		MetricsFile: {"": "", "\x00\x00": ": the last line is cut off; skipped it"},
	} {
		for text, want := range damaged {
			dir := filepath.Join(t.TempDir(), "rollouts")
			path := filepath.Join(dir, name)
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			if want == "" {
				require.Empty(t, Damage(dir), text)
				continue
			}
			require.Equal(t, []string{path + want}, Damage(dir), text)
		}
	}
	path := filepath.Join(t.TempDir(), "lines.json")
	require.NoError(t, os.WriteFile(path, []byte("{}\n{"), 0o644))
	require.Equal(t, path+": the last line is cut off; skipped it", CutOff(path))
	require.NoError(t, os.WriteFile(path, []byte("{}\nnonsense\n"), 0o644))
	require.Empty(t, CutOff(path))
	require.Empty(t, Damaged(filepath.Join(t.TempDir(), "none.json")))
}

// Readers skip what a crash cut off, and report what is wrong before the end.
func TestReadersSkipDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), WarningsFile)
	for text, n := range map[string]int{"": 0, `{"step":1}` + "\n": 1, `{"step":1}` + "\n{\"st": 1,
		`{"step":1}` + "\n\x00\x00\x00": 1, "\x00\x00": 0} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		all, err := ReadWarnings(path)
		require.NoError(t, err, text)
		require.Len(t, all, n)
	}
	require.NoError(t, os.WriteFile(path, []byte("{\n"+`{"step":1}`+"\n"), 0o644))
	_, err := ReadWarnings(path)
	require.ErrorContains(t, err, path+":1: ")
	for _, text := range []string{"", "{\"name\":", strings.Repeat("\x00", 100)} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, aboutFile), []byte(text), 0o644))
		about, err := ReadAbout(dir)
		require.NoError(t, err)
		require.Zero(t, about)
	}
}
