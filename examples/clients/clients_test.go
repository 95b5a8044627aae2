// Package clients tests easyrl serve with clients that others wrote.
package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	api "github.com/easyrl/easyrl/inference/server"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/model/folder"
	"github.com/easyrl/easyrl/run"
	"github.com/easyrl/easyrl/run/serve"
)

// pinned returns the Python of this folder with the pinned clients. It skips the test if
// they are not installed.
func pinned(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("requirements.txt")
	require.NoError(t, err)
	python, err := filepath.Abs(filepath.Join("venv", "bin", "python"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		name, want, ok := strings.Cut(strings.TrimSpace(line), "==")
		require.True(t, ok, line)
		name, _, _ = strings.Cut(name, "[")
		program := fmt.Sprintf("import importlib.metadata; print(importlib.metadata.version(%q))", name)
		got, err := exec.CommandContext(t.Context(), python, "-c", program).Output() //nolint:gosec // of this test
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Skipf("%s has no %s %s", python, name, want)
		}
	}
	return python
}

// sums writes a model with random weights, the quickstart's tokenizer and a chat template,
// and returns its folder.
func sums(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "go", "run", "../addition", "-out", dir, "-train", "1", "-test", "1",
		"-demos", "1").CombinedOutput() //nolint:gosec // of this test
	require.NoError(t, err, "%s", said)
	config := filepath.Join(dir, "model", "config.json")
	shape, err := os.ReadFile(config) //nolint:gosec // of this test
	require.NoError(t, err)
	f, err := folder.Random(config, filepath.Dir(config), shape, 1)
	require.NoError(t, err)
	dev, err := run.OpenCPU(1)
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	w, err := f.Weights(dev)
	require.NoError(t, err)
	out := filepath.Join(dir, "sums")
	require.NoError(t, f.Write(out, w))
	template, err := os.ReadFile("chat_template.jinja")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out, "chat_template.jinja"), template, 0o600))
	return out
}

// Each client gets what it asks for.
func TestClients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a process per rollout")
	}
	python, model := pinned(t), sums(t)
	ctx, stop := context.WithCancel(t.Context())
	address, ended := make(chan string, 1), make(chan error, 1)
	cfg := serve.Config{Model: model, Threads: 1, MaxRunning: 64, Server: api.DefaultConfig(),
		Say: func(_ notice.Kind, format string, args ...any) {
			if strings.HasPrefix(format, "serving") {
				address <- args[1].(string)
			}
		}}
	cfg.Server.Listen = "127.0.0.1:0"
	go func() { ended <- serve.Run(ctx, cfg) }()
	var url string
	select {
	case at := <-address:
		url = "http://" + at
	case err := <-ended:
		require.NoError(t, err)
	}
	said, err := exec.CommandContext(ctx, python, "check.py", url,
		model).CombinedOutput() //nolint:gosec // of this test
	stop()
	require.NoError(t, err, "%s", said)
	require.NoError(t, <-ended)
	for _, name := range []string{"openai", "litellm", "lm-eval", "verifiers"} {
		require.Regexp(t, "(?m)^"+name+` \S+: \d+ checks$`, string(said))
	}
}
