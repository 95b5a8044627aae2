package report

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none, err := ReadMachine(dir)
	require.NoError(t, err)
	require.Nil(t, none)

	here := ThisMachine()
	require.NotEmpty(t, here.CPU)
	require.Equal(t, runtime.GOMAXPROCS(0), here.Cores)
	require.Equal(t, runtime.Version(), here.Go)
	require.NotEmpty(t, here.Easyrl)
	if runtime.GOOS == "linux" {
		require.Positive(t, here.Memory)
	}
	require.NoError(t, here.Write(dir))
	read, err := ReadMachine(dir)
	require.NoError(t, err)
	require.Equal(t, &here, read)

	require.NoError(t, os.WriteFile(filepath.Join(dir, machineFile), []byte("{"), 0o644))
	read, err = ReadMachine(dir)
	require.NoError(t, err)
	require.Nil(t, read, "a crash cut it off")
	require.NoError(t, os.WriteFile(filepath.Join(dir, machineFile), []byte("[]"), 0o644))
	_, err = ReadMachine(dir)
	require.ErrorContains(t, err, "read "+filepath.Join(dir, machineFile))
	require.ErrorContains(t, here.Write(filepath.Join(dir, "none")), "write "+filepath.Join(dir, "none", machineFile))
}
