package trainer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/checkpoint"
)

// What the next process finds in a run's folder.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		change     func(t *testing.T, dir string) (now string) // returns where the folder is
		resume     bool
		keepsRun   bool
		keepsClaim bool
	}{
		{"resumed", func(_ *testing.T, dir string) string { return dir }, true, true, true},
		{"begun again", func(_ *testing.T, dir string) string { return dir }, false, false, true},
		{"under another name", func(t *testing.T, dir string) string {
			require.NoError(t, os.Symlink(dir, dir+"-link"))
			return dir + "-link"
		}, true, true, true},
		{"copied", func(t *testing.T, dir string) string {
			require.NoError(t, os.CopyFS(dir+"-copy", os.DirFS(dir)))
			return dir + "-copy"
		}, true, true, false},
		{"moved", func(t *testing.T, dir string) string {
			require.NoError(t, os.Rename(dir, dir+"-moved"))
			return dir + "-moved"
		}, true, true, false},
		{"removed", func(t *testing.T, dir string) string {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o755))
			return dir
		}, true, false, false},
		{"damaged", func(t *testing.T, dir string) string {
			require.NoError(t, os.Truncate(filepath.Join(dir, identityFile), 20))
			return dir
		}, true, false, false},
		{"emptied", func(t *testing.T, dir string) string {
			require.NoError(t, os.WriteFile(filepath.Join(dir, identityFile),
				[]byte(`{"run":"","trainer":"","folder":""}`), 0o600))
			return dir
		}, true, false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			first, err := ReadIdentity(dir, true)
			require.NoError(t, err)
			require.NotEmpty(t, first.Run)
			require.NotEmpty(t, first.Trainer)
			require.NotContains(t, first.Trainer, first.Run)
			require.NoDirExists(t, dir)
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, first.Keep(dir))
			require.NoError(t, first.Keep(dir), "again")
			info, err := os.Stat(filepath.Join(dir, identityFile))
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "only its owner reads the claim")

			dir = row.change(t, dir)
			next, err := ReadIdentity(dir, row.resume)
			require.NoError(t, err)
			require.Equal(t, row.keepsRun, next.Run == first.Run)
			require.Equal(t, row.keepsClaim, next.Trainer == first.Trainer)
			require.NoError(t, next.Keep(dir))
			third, err := ReadIdentity(dir, true)
			require.NoError(t, err)
			require.Equal(t, []string{next.Run, next.Trainer}, []string{third.Run, third.Trainer})
		})
	}
}

// Of two processes that begin a run in one folder, the second does not replace the identity of
// the first.
func TestIdentityOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := ReadIdentity(dir, false)
	require.NoError(t, err)
	second, err := ReadIdentity(dir, false)
	require.NoError(t, err)
	require.NotEqual(t, first.Run, second.Run)
	require.NoError(t, first.Keep(dir))
	require.EqualError(t, second.Keep(dir), `run.dir is "`+dir+
		`", where another process has started a run in the meantime; repeat the command`)
	kept, err := ReadIdentity(dir, true)
	require.NoError(t, err)
	require.Equal(t, first.Run, kept.Run)
}

// A refused folder's checkpoints are listed in one line, however many there are.
func TestManyCheckpointsOfSeveralRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, run string) {
		path := filepath.Join(CheckpointRoot(dir), name, stateFile)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(`{"run":"`+run+`"}`), 0o644))
	}
	for step := range 20 {
		write(checkpoint.StepName(step), "RUNA")
	}
	require.NoError(t, os.Symlink(checkpoint.StepName(3), filepath.Join(CheckpointRoot(dir), BestLink)))
	id, err := ReadIdentity(dir, true)
	require.NoError(t, err)
	require.Equal(t, "RUNA", id.Run)
	write(checkpoint.StepName(20), `RUN\u001bB`)
	_, err = ReadIdentity(dir, true)
	require.EqualError(t, err, "resume: "+filepath.Join(dir, identityFile)+
		" is missing or damaged, and the checkpoints in "+CheckpointRoot(dir)+" are of several runs: "+
		"step-000020 of run RUN\\x1bB; step-000019, step-000018, step-000017, 17 more of run RUNA. "+
		"Keep only those of the run that you want to continue")
	id, err = ReadIdentity(dir, false)
	require.NoError(t, err)
	require.NotEqual(t, "RUNA", id.Run)
}
