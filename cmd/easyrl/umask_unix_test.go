//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody else reads what a run with umask 077 writes.
func TestRunFilesRespectTheUmask(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	run := filepath.Join(dir, "run")
	shell(t,
		fmt.Sprintf(
			"umask 077; %q train %q -set run.dir='%q' -set run.steps=1 -set 'log.to=[\"csv\"]' -set eval.every=1",
			os.Args[0], filepath.Join(dir, "run.toml"), run))
	files := 0
	require.NoError(t, filepath.WalkDir(run, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		files++
		return nil
	}))
	require.Greater(t, files, 10)
}
