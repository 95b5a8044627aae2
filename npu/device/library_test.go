//go:build cgo && unix

package device_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/soak"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/nputest"
)

// build compiles C sources into a shared library, with GNU C, in which a compiler may
// contract products and sums unless the source forbids it.
func build(t *testing.T, name string, args ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	lib := filepath.Join(t.TempDir(), name)
	flags := []string{"-std=gnu11", "-O2", "-shared", "-fPIC", "-I", "../csrc", "-o", lib}
	out, err := exec.Command(compiler, append(append(flags, args...), "-lm", "-lpthread")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return lib
}

// TestCPULibrary builds the CPU device as a shared library and requires the same bits
// as from the device that is compiled in.
func TestCPULibrary(t *testing.T) {
	sources, err := filepath.Glob("../cpu/*.c")
	require.NoError(t, err)
	lib := build(t, "libeasyrl_cpu.so", sources...)
	for _, numerics := range []npu.Numerics{npu.FP32, npu.BF16} {
		t.Run(numerics.String(), func(t *testing.T) { testCPULibrary(t, lib, numerics) })
	}
}

func testCPULibrary(t *testing.T, lib string, numerics npu.Numerics) {
	loaded, err := device.Open(lib, numerics, 2)
	require.NoError(t, err)
	defer func() { require.NoError(t, loaded.Close()) }()
	builtin, err := cpu.Open(numerics, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, builtin.Close()) }()
	require.Equal(t, builtin.Info(), loaded.Info())
	require.Equal(t, 2, npu.Threads(loaded))
	nputest.Same(t, builtin, loaded)
	t.Run("conformance", func(t *testing.T) {
		test := nputest.Contract
		if soak.Long() {
			test = nputest.Run
		}
		test(t, func(threads int) (npu.Device, error) { return device.Open(lib, numerics, threads) })
	})
}

func source(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device.c")
	require.NoError(t, os.WriteFile(path, []byte("#include \"easyrl_device.h\"\n"+text), 0o600))
	return path
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	notLibrary := filepath.Join(t.TempDir(), "text.so")
	require.NoError(t, os.WriteFile(notLibrary, []byte("not a library"), 0o600))
	const entry = "const easyrl_device_api *easyrl_device_api_v5(easyrl_dtype type) { (void)type; return %; }\n"
	returning := func(value string) string { return strings.Replace(entry, "%", value, 1) }
	for name, test := range map[string]struct{ lib, want string }{
		"missing":   {filepath.Join(t.TempDir(), "libnone.so"), "libnone.so: no such file"},
		"not one":   {notLibrary, "text.so: "},
		"no symbol": {build(t, "libempty.so", source(t, "int nothing;\n")), "no symbol easyrl_device_api_v5"},
		"no table":  {build(t, "libnull.so", source(t, returning("0"))), `library lacks numerics "float32"`},
		"version 1": {build(t, "liboldest.so", source(t, "const void *easyrl_device_api_v1(void) { return 0; }\n")),
			"library has version 1, expected 5"},
		"version 2": {build(t, "libolder.so", source(t, "const void *easyrl_device_api_v2(void) { return 0; }\n")),
			"library has version 2, expected 5"},
		"version 99": {build(t, "libversion.so",
			source(t, "static easyrl_device_api t = {.version = 99, .size = sizeof t};\n"+returning("&t"))),
			"library has version 99, expected 5"},
		"small table": {build(t, "libsmall.so",
			source(t, "static easyrl_device_api t = {EASYRL_DEVICE_VERSION, .size = 64};\n"+returning("&t"))),
			"library's table has 64 bytes, expected at least "},
		"no device": {
			build(t, "libopen.so", source(t, `#include <stdio.h>
static easyrl_device *fail(int32_t o, int32_t n, char *err, int64_t len) { snprintf(err, len, "ordinal %d of 1",`+
				` (int)o); return 0; }
static easyrl_device_api t = {.version = EASYRL_DEVICE_VERSION, .size = sizeof t + 8, .open = fail};
`+returning("&t"))), "open device 0: ordinal 0 of 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := device.Open(test.lib, npu.FP32, 1)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, filepath.Base(test.lib))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}
