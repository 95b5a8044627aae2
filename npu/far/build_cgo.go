//go:build cgo && unix

package far

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu/cpu"
)

// keep is the time for which a library that is not used stays in the user's cache.
const keep = 48 * time.Hour

// Library returns the path of the library. The first call on a machine compiles it into
// the user's cache. Library skips the test without a C compiler.
func Library(t testing.TB) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil || unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("no C compiler for a machine of 64 bits")
	}
	args, inputs := sources(t)
	lib := filepath.Join(cache(t), fmt.Sprintf("far-%s.so", sum(t, args, inputs)))
	lock, err := os.Create(filepath.Join(filepath.Dir(lib), "lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	now := time.Now()
	if os.Chtimes(lib, now, now) == nil {
		return lib
	}
	part := lib + ".part"
	out, err := exec.Command(compiler, append(args, "-o", part, "-lm", "-lpthread")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(part, lib))
	prune(t, filepath.Dir(lib), now)
	return lib
}

// sources returns the compiler's arguments and the files that it reads. Kernels are those
// of the machine's best instruction set.
func sources(t testing.TB) (args, inputs []string) {
	t.Helper()
	isas := cpu.ISAs()
	require.NotEmpty(t, isas)
	npu := filepath.Join(root(t), "npu")
	args = []string{
		"-std=gnu11", "-O1", "-shared", "-fPIC", "-I", filepath.Join(npu, "csrc"),
		"-Deasyrl_device_api_v4=easyrl_far_cpu_api",
		filepath.Join(npu, "cpu", "device.c"), filepath.Join(npu, "cpu", "pool.c"),
		filepath.Join(npu, "cpu", "kernels_"+isas[len(isas)-1]+".c"), filepath.Join(npu, "far", "far.c"),
	}
	for _, pattern := range []string{"csrc/*.h", "cpu/*.c", "far/*.c", "far/*.h"} {
		files, err := filepath.Glob(filepath.Join(npu, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		inputs = append(inputs, files...)
	}
	return args, inputs
}

// root returns the folder of the module that the test runs in.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above the test's folder")
		dir = parent
	}
}

// cache returns the folder of libraries. Without a cache of the user, it lasts as long as
// the test.
func cache(t testing.TB) string {
	t.Helper()
	if dir, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(dir, "easyrl-tests")
		if os.MkdirAll(dir, 0o700) == nil {
			return dir
		}
	}
	return t.TempDir()
}

// sum identifies a build.
func sum(t testing.TB, args, files []string) string {
	t.Helper()
	h := sha256.New()
	fmt.Fprintf(h, "%q", args)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		fmt.Fprintf(h, "%s %d\n%s", file, len(data), data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// prune removes libraries that nobody has used for a while.
func prune(t testing.TB, dir string, now time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "far-*"))
	require.NoError(t, err)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && now.Sub(info.ModTime()) > keep {
			require.NoError(t, os.Remove(file))
		}
	}
}
