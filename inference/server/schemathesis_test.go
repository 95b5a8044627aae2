package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// short is a backend with a short context and without files, so that all requests end soon.
type short struct{ noFiles }

func (b short) Info() Info {
	info := b.noFiles.Info()
	info.Context = 32
	return info
}

// Schemathesis finds no request whose answer differs from the document. The test needs a
// virtual environment in schemathesis/venv with its requirements.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("sends thousands of requests")
	}
	python := filepath.Join("schemathesis", "venv", "bin", "python")
	want, err := os.ReadFile(filepath.Join("schemathesis", "requirements.txt"))
	require.NoError(t, err)
	have := exec.CommandContext(t.Context(), python, "-c",
		"import importlib.metadata; print('schemathesis==' + "+
			"importlib.metadata.version('schemathesis'))") //nolint:gosec // of this test
	if got, err := have.Output(); err != nil || string(got) != string(want) {
		t.Skipf("no %s with %s", python, strings.TrimSpace(string(want)))
	}
	s := serve(t, short{noFiles{newFake()}}, fakeText{}, nil)
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("schemathesis", "check.py"), "http://"+s.Addr(),
		"20").CombinedOutput() //nolint:gosec // of this test
	require.NoError(t, err, "%s", out)
	cases := regexp.MustCompile(`(\d+) generated`).FindSubmatch(out)
	require.NotNil(t, cases, "%s", out)
	n, err := strconv.Atoi(string(cases[1]))
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 1000)
}
