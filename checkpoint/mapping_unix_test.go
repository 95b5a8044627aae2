//go:build unix

package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// If another process truncates a mapped file, touching a page beyond its end
// raises a bus error. It must not end the program.
func TestFileShortenedWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	const n = 1 << 20
	require.NoError(t, WriteFile(path, []Source{constant("a", 0, n), constant("b", 1, n)}, nil))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	a, _ := f.Tensor("a")
	b, _ := f.Tensor("b")
	got := make([]float32, n)
	require.NoError(t, b.Float32s(got))
	require.NoError(t, os.Truncate(path, 4*n)) // nearly all data of a
	for range 2 {
		require.EqualError(t, b.Float32s(got), `read tensor "b" of `+path+
			": read failed: the file was truncated while open, or the disk failed")
		require.NoError(t, a.ReadAt(got[:10], 0))
		require.Equal(t, []float32{0, 1, 2}, got[:3])
	}
	require.NoError(t, f.Close())
	require.ErrorContains(t, b.Float32s(got), "file is closed")
}

func TestGuardPassesOtherPanics(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "a fault of the program",
		func() { _ = guard(func() { panic("a fault of the program") }) })
	require.Panics(t, func() { _ = guard(func() { _ = make([]int, 3)[len(t.Name())] }) })
	require.NoError(t, guard(func() {}))
}

func TestReadAt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	const n = 2*readStep + 5
	require.NoError(t, WriteFile(path, []Source{constant("a", 0, n)}, nil))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	a, _ := f.Tensor("a")
	for _, c := range [][2]int{{0, n}, {0, 0}, {n, 0}, {1, readStep}, {readStep - 1, readStep + 2}, {n - 1, 1}} {
		got := make([]float32, c[1])
		require.NoError(t, a.ReadAt(got, c[0]))
		for i, v := range got {
			require.Equal(t, float32(c[0]+i), v)
		}
	}
	for _, c := range [][2]int{{-1, 1}, {n, 1}, {n + 1, 0}, {0, n + 1}} {
		require.ErrorContains(t, a.ReadAt(make([]float32, c[1]), c[0]), "are outside its 2097157")
	}
}
