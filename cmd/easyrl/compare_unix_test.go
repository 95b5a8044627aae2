//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/run/compare"
)

// readComparison reads a comparison's results.
func readComparison(t *testing.T, dir string) (c compare.Comparison) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, compare.File))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &c))
	return c
}

// Each mode runs in its own process on the same cores, and all end in the same weights.
func TestCompare(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	out := filepath.Join(dir, "out")
	t.Setenv("EASYRL_TEST_AS_COMMAND", "1")
	code, stdout, stderr := command(t, "compare", filepath.Join(dir, "run.toml"), "-out", out, "-set", "run.steps=3",
		"-set", "eval.every=3")
	require.Equal(t, exitDone, code, stderr)
	c := readComparison(t, out)
	require.Len(t, c.Runs, 3)
	require.Equal(t, 2, c.Cores, "one thread per side")
	for i, name := range []string{"sync", "periodic-async", "colocated"} {
		r := c.Runs[i]
		require.Equal(t, name, r.Name)
		require.Equal(t, weightsHash(t, filepath.Join(out, name), 3), r.Weights)
		require.Equal(t, c.Runs[0].Weights, r.Weights)
		require.Equal(t, 2, r.Timed)
		require.Positive(t, r.Sampling)
		require.Positive(t, r.Training)
		require.Contains(t, r.Eval, "eval/prompts/mean@1")
		require.FileExists(t, filepath.Join(out, name, "trace.json"))
	}
	require.NotNil(t, c.Recommend)
	require.Contains(t, stdout, "All runs end with bit-identical weights")
	require.Contains(t, stdout, filepath.Join(out, compare.PageFile))
	require.Contains(t, stderr, "sync (1 of 3): 1 + 1×1 threads\n")
	require.Contains(t, stderr, "colocated (3 of 3): 2 or 1×2 threads\n")
}

// An interrupted comparison leaves a checkpoint and resumes from it.
func TestInterruptedCompareResumes(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	out := filepath.Join(dir, "out")
	args := []string{"compare", filepath.Join(dir, "run.toml"), "-out", out, "-modes", "sync,colocated", "-set",
		"run.steps=8", "-set", "checkpoint.every=1000"}
	p := startProcess(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, holdKey+"=step 2/8", holdRun+"="+filepath.Join(out, "colocated"))
	}, args...)
	p.until("colocated (2 of 2)")
	p.until("step 2/8")
	p.signal(syscall.SIGTERM)
	code, errs := p.end()
	require.Equal(t, exitStopped, code, errs)
	require.Contains(t, errs, "\nstopped; finished runs are kept\nhint: continue with: ")
	_, errs = shell(t, continued(t, errs[strings.LastIndex(errs, "\nhint: "):]))
	require.Contains(t, errs, fmt.Sprintf("sync (1 of 2): already done in %s\n", filepath.Join(out, "sync")))
	require.Contains(t, errs, "resuming after step")
	c := readComparison(t, out)
	require.Equal(t, c.Runs[0].Weights, c.Runs[1].Weights)
	require.Less(t, c.Runs[1].Timed, c.Runs[0].Timed, "the first step of the second process is not timed")
}

// If a mode fails, the others are still compared, and it can be retried.
func TestCompareKeepsFinishedRuns(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	out := filepath.Join(dir, "out")
	t.Setenv("EASYRL_TEST_AS_COMMAND", "1")
	args := []string{"compare", filepath.Join(dir, "run.toml"), "-out", out, "-set", "run.steps=2", "-modes",
		"sync,colocated,periodic-async"}
	blocked := filepath.Join(out, "colocated")
	require.NoError(t, os.Mkdir(out, 0o755))
	require.NoError(t, os.WriteFile(blocked, nil, 0o644))
	code, stdout, stderr := command(t, args...)
	require.Equal(t, exitFailed, code, stderr)
	require.Contains(t, stderr,
		"error: colocated: easyrl train exited with status 2, see its error above; retry failed runs with -resume\n")
	require.Contains(t, stdout, "colocated failed: easyrl train exited with status 2")
	c := readComparison(t, out)
	require.Len(t, c.Runs, 2)
	require.Equal(t, c.Runs[0].Weights, c.Runs[1].Weights)
	require.NoError(t, os.Remove(blocked))
	code, _, stderr = command(t, append(args, "-resume")...)
	require.Equal(t, exitDone, code, stderr)
	c = readComparison(t, out)
	require.Len(t, c.Runs, 3)
	require.Empty(t, c.Failed)
}

func TestCompareRefuses(t *testing.T) {
	if !alone(t) {
		return
	}
	dir := tinyRun(t)
	t.Setenv("EASYRL_TEST_AS_COMMAND", "1")
	file, out := filepath.Join(dir, "run.toml"), filepath.Join(dir, "out")
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"compare"}, "error: no configuration given, expected RUN.toml\n"},
		{[]string{"compare", file, "-modes", "asink"},
			"error: compare: -modes has \"asink\", expected any of sync, periodic-async, colocated\n"},
		{[]string{"compare", file, "-set", "run.step=1"},
			"error: compare: -set: unknown key run.step, did you mean run.steps?\n"},
		{[]string{"compare", file, "-out", out, "-set", "data.train=none.jsonl"}, "none.jsonl"},
	} {
		code, stdout, stderr := command(t, row.args...)
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, row.want)
		require.Empty(t, stdout)
		require.NoDirExists(t, out)
	}
}
