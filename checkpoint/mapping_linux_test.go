package checkpoint

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// resident returns the resident memory of a file's mapping in KiB, as counted by
// the kernel.
func resident(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), path+"\n")
	require.True(t, ok, "%s is not mapped", path)
	kib, err := strconv.Atoi(regexp.MustCompile(`Rss: +(\d+) kB`).FindStringSubmatch(rest)[1])
	require.NoError(t, err)
	return kib
}

func TestReadReleasesPages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "big.safetensors")
	const n = 5 << 20
	require.NoError(t, WriteFile(path, []Source{constant("a", 0, n), constant("b", 7, 3, n/4)}, nil))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		got := make([]float32, x.Len())
		require.NoError(t, x.Float32s(got))
		require.Equal(t, float32(x.Len()-1)+got[0], got[x.Len()-1])
		// The page where the next tensor begins, and what the kernel maps around
		// it.
		require.LessOrEqual(t, resident(t, path), 4096, "of %d KiB", n*4/1024)
	}
}
