package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// firstOf reads the file at path and returns the first value of each block of 40.
func firstOf(t *testing.T, files *Files, path string) (vals []float32) {
	t.Helper()
	err := files.Read(path, func(s *Stream) error {
		return s.Blocks(func(Tensor) int { return 40 }, func(_ Tensor, _ int, block []float32) error {
			vals = append(vals, block[0])
			return nil
		})
	})
	require.NoError(t, err)
	return vals
}

// Files keeps its mapping of a file in memory from version to version. It drops
// the mapping when another file is read, when the file has grown, and after a
// minute without a read.
func TestFilesKeepMapping(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has files in memory")
	}
	synctest.Test(t, func(t *testing.T) {
		one, two, files := NewMemory(), NewMemory(), Files{}
		write(t, one, 1, 100)
		write(t, two, 7, 50)
		require.Equal(t, []float32{1, 41, 81}, firstOf(t, &files, one.Path()))
		kept := files.file
		require.NotNil(t, kept)
		write(t, one, 2, 100)
		require.Equal(t, []float32{2, 42, 82}, firstOf(t, &files, one.Path()))
		require.Same(t, kept, files.file, "the next version is read in the same map")

		write(t, one, 3, 200)
		require.Equal(t, []float32{3, 43, 83, 123, 163}, firstOf(t, &files, one.Path()), "a file that grew in place")
		require.NotSame(t, kept, files.file)
		kept = files.file
		require.Equal(t, []float32{7, 47}, firstOf(t, &files, two.Path()))
		require.NotSame(t, kept, files.file)
		require.ErrorIs(t, kept.Close(), os.ErrClosed, "one map is kept")

		disk := filepath.Join(t.TempDir(), "w")
		require.NoError(t, os.WriteFile(disk, bytes.Clone(one.Bytes()), 0o600))
		require.Equal(t, []float32{3, 43, 83, 123, 163}, firstOf(t, &files, disk))
		require.Nil(t, files.file, "a file on disk could be truncated, so it is not mapped")

		firstOf(t, &files, one.Path())
		<-time.After(keepMapping - time.Second)
		firstOf(t, &files, one.Path())
		<-time.After(keepMapping - time.Second)
		synctest.Wait()
		keeps := func() bool {
			files.mu.Lock()
			defer files.mu.Unlock()
			return files.file != nil
		}
		require.True(t, keeps())
		<-time.After(time.Second)
		synctest.Wait()
		require.False(t, keeps(), "no reads for a minute")
		require.Len(t, firstOf(t, &files, one.Path()), 5)
		require.NoError(t, files.Close())
		require.NoError(t, files.Close())
	})
}

// A kept mapping yields a complete version or an error, never a half-written one.
func TestFilesRejectTornVersion(t *testing.T) {
	t.Parallel()
	m, files := NewMemory(), Files{}
	write(t, m, 1, 100)
	if m.Path() == "" {
		t.Skip("other processes cannot open it here")
	}
	require.Len(t, firstOf(t, &files, m.Path()), 3)
	require.NoError(t, m.Begin(len(m.Bytes())))
	err := files.Read(m.Path(), func(*Stream) error { return nil })
	require.ErrorContains(t, err, m.Path()+": read safetensors: ")
	write(t, m, 2, 100)
	require.Equal(t, []float32{2, 42, 82}, firstOf(t, &files, m.Path()))
	require.NoError(t, files.Close())
}
