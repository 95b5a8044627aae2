//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run goes on when nobody reads its standard error and output.
func TestClosedPipesEndNoRun(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for name, redirected := range map[string]string{"standard error": "2>&1 >/dev/null", "both": "2>&1",
		"after the end": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, status := filepath.Join(dir, name), filepath.Join(t.TempDir(), "status")
			line := fmt.Sprintf(
				`{ %q train %q -set run.dir='%q' -set run.steps=3 %s; echo $? >%q; } | head -1 >/dev/null`, os.Args[0],
				filepath.Join(dir, "run.toml"), run, redirected, status)
			if name == "after the end" {
				line = strings.Replace(line, "head -1", "true", 1)
			}
			shell(t, line)
			code, err := os.ReadFile(status)
			require.NoError(t, err)
			require.Equal(t, "0\n", string(code))
			requireSteps(t, run, 1, 3)
			weightsHash(t, run, 3)
		})
	}
}

// A command whose output nobody reads ends.
func TestClosedOutputEndsLogprobs(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	status := filepath.Join(t.TempDir(), "status")
	_, errs := shell(t, fmt.Sprintf(`while echo '{"ids":[1,2]}'; do :; done 2>/dev/null | { %q logprobs -model %q; `+
		`echo $? >%q; } | head -1 >/dev/null`,
		os.Args[0], filepath.Join(badRun(t), "m"), status))
	require.Empty(t, errs)
	code, err := os.ReadFile(status)
	require.NoError(t, err)
	require.Equal(t, "1\n", string(code))
}

// A run that is started with nohup survives the terminal.
func TestNohup(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	run := filepath.Join(dir, "run")
	p := startProcess(t, func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, cmd.Args...)
		cmd.Path, cmd.Err = exec.LookPath("sh")
	}, "train", filepath.Join(dir, "run.toml"), "-set", fmt.Sprintf("run.dir=%q", run))
	p.until("step 1/5")
	p.signal(syscall.SIGHUP)
	code, errs := p.end()
	require.Zero(t, code, errs)
	requireSteps(t, run, 1, 5)
}
