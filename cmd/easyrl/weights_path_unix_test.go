//go:build unix

package main

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server's answer tells nothing about a file that holds no weights, not even whether it
// exists, and no special file blocks it.
func TestWeightsPathIsNoOracle(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "model")
	code, _, errs := command(t, "init", "-config", filepath.Join(tinyRun(t), "config.json"), "-out", dir)
	require.Zero(t, code, errs)
	other := t.TempDir()
	in := func(name string) string { return filepath.Join(other, name) }
	require.NoError(t, syscall.Mkfifo(in("fifo"), 0o600))
	require.NoError(t, os.WriteFile(in("empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(in("text"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o600))
	require.NoError(t, os.WriteFile(in("unreadable"), []byte("x"), 0))
	require.NoError(t, os.Symlink(in("loop"), in("loop")))
	require.NoError(t, os.Symlink("/dev/zero", in("zero")))
	for _, args := range [][]string{{"-model", dir}, {"-model", dir, "-simulate", "lengths=fixed:5"}} {
		root, _, stop := serveFolder(t, args...)
		for _, path := range []string{in("missing"), in("missing/deeper"), in("text/below"), in("fifo"), in("empty"),
			in("text"), in("unreadable"),
			in("loop"), in("zero"), other, "/dev/null", "/dev/tty", "/proc/self/mem", "/etc/passwd", "/x\x00y",
			"/" + strings.Repeat("a", 5000)} {
			var answer struct {
				Error struct{ Message, Type, Param string }
			}
			status := ask(t, http.MethodPut, root+"/v1/weights?version=2&path="+url.QueryEscape(path), "",
				http.NoBody, &answer)
			require.Equal(t, http.StatusBadRequest, status, "%q: %v", path, answer)
			require.Equal(t, "path is not a file with weights of this model; send the weights in the request body",
				answer.Error.Message, "%q", path)
		}
		require.Zero(t, stop())
	}
}
