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

// unusedLifetime is the time after its last use for which a library stays in the user's cache.
const unusedLifetime = 48 * time.Hour

// Library returns the path of the shared library. The first call on a machine compiles it into
// the user's cache. Library skips the test if there is no C compiler or the machine is not a
// 64-bit one.
func Library(t testing.TB) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	is64Bit := unsafe.Sizeof(uintptr(0)) == 8 // the library sets high bits of addresses
	if err != nil || !is64Bit {
		t.Skip("no C compiler for a machine of 64 bits")
	}
	args, inputs := compilation(t)
	dir := cacheDir(t)
	lib := filepath.Join(dir, fmt.Sprintf("far-%s.so", cacheKey(t, args, inputs)))
	// Test processes of several packages run at the same time. Only the one with the lock compiles
	// or prunes. Closing the file releases the lock.
	lock, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	now := time.Now()
	// Chtimes fails if the library does not exist. Otherwise it records the use for prune.
	if os.Chtimes(lib, now, now) == nil {
		return lib
	}
	unfinished := lib + ".part"
	out, err := exec.Command(compiler, append(args, "-o", unfinished, "-lm", "-lpthread")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(unfinished, lib)) // an interrupted compiler leaves no broken library
	prune(t, dir, now)
	return lib
}

// compilation returns the compiler's arguments and all files that it may read. The kernels are
// those of the machine's best instruction set.
func compilation(t testing.TB) (args, inputs []string) {
	t.Helper()
	isas := cpu.ISAs() // the best is the last
	require.NotEmpty(t, isas)
	best := isas[len(isas)-1]
	npu := filepath.Join(moduleRoot(t), "npu")
	args = []string{
		"-std=gnu11", "-O1", "-shared", "-fPIC", "-I", filepath.Join(npu, "csrc"),
		// device.c defines the entry of the CPU device under this name, and far.c its own. The new
		// name of the CPU's entry, by which far.c calls it, avoids the conflict.
		"-Deasyrl_device_api_v5=easyrl_far_cpu_api",
		filepath.Join(npu, "cpu", "device.c"), filepath.Join(npu, "cpu", "pool.c"),
		filepath.Join(npu, "cpu", "kernels_"+best+".c"), filepath.Join(npu, "cpu", "kernels_"+best+"_bf16.c"),
		filepath.Join(npu, "far", "far.c"),
	}
	for _, pattern := range []string{"csrc/*.h", "cpu/*.c", "far/*.c", "far/*.h"} {
		files, err := filepath.Glob(filepath.Join(npu, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		inputs = append(inputs, files...)
	}
	return args, inputs
}

// moduleRoot returns the folder of the module that the test runs in.
func moduleRoot(t testing.TB) string {
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

// cacheDir returns the folder for libraries: one in the user's cache or, if the user has none,
// a temporary one of the test.
func cacheDir(t testing.TB) string {
	t.Helper()
	if dir, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(dir, "easyrl-tests")
		if os.MkdirAll(dir, 0o700) == nil {
			return dir
		}
	}
	return t.TempDir()
}

// cacheKey returns a hash of all that determines the library, except the compiler.
func cacheKey(t testing.TB, args, files []string) string {
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

// prune removes libraries of dir that no test has used for unusedLifetime.
func prune(t testing.TB, dir string, now time.Time) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "far-*"))
	require.NoError(t, err)
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && now.Sub(info.ModTime()) > unusedLifetime {
			require.NoError(t, os.Remove(file))
		}
	}
}
