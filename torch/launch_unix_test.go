//go:build unix

package torch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/backend/session"
	"github.com/easyrl/easyrl/reward/program"
	"github.com/easyrl/easyrl/torch/wire"
)

// interpreter writes a program that takes the place of Python.
func interpreter(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

// If torchrun ends before its ranks connect, the error quotes the cause from its output.
func TestLaunchFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ script, want string }{
		{"echo Traceback >&2; echo 'ModuleNotFoundError: No module named x' >&2; echo see above >&2; exit 1",
			"torch: torchrun ended: ModuleNotFoundError: No module named x; see "},
		{"echo 'unknown option'; exit 2", "torch: torchrun ended: unknown option; see "},
		{"exit 2", "torch: torchrun ended; see "},
	} {
		cfg := configure(t.TempDir(), t.TempDir())
		cfg.Python = interpreter(t, test.script)
		_, err := Open(t.Context(), cfg)
		require.ErrorContains(t, err, test.want)
		require.FileExists(t, filepath.Join(cfg.Dir, OutputFile))
	}
	cfg := configure(t.TempDir(), t.TempDir())
	cfg.Python = filepath.Join(t.TempDir(), "none")
	_, err := Open(t.Context(), cfg)
	require.ErrorContains(t, err, "none")
}

// Ranks find the address and the token in their environment, and the token nowhere else.
func TestLaunchPassesToken(t *testing.T) {
	t.Parallel()
	cfg := configure(t.TempDir(), t.TempDir())
	cfg.DP, cfg.TP, cfg.Threads = 2, 3, 4
	out := filepath.Join(t.TempDir(), "out")
	cfg.Python = interpreter(t, `{ echo "$EASYRL_ADDRESS"; echo "$EASYRL_TOKEN"; echo "$OMP_NUM_THREADS"; echo `+
		`"$EASYRL_MEETING"; echo "$@"; } > `+out)
	cfg.Token = ""
	_, err := Open(t.Context(), cfg)
	require.ErrorContains(t, err, "torchrun ended")
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 5)
	require.True(t, strings.HasPrefix(lines[0], "127.0.0.1:"), lines[0])
	require.GreaterOrEqual(t, len(lines[1]), 26)
	require.Equal(t, "4", lines[2])
	worker := filepath.Dir(lines[3])
	require.NoDirExists(t, worker)
	require.Equal(t, "-m torch.distributed.run --rdzv-backend c10d --rdzv-conf "+
		"store_type=file,keep_alive_interval=600 --local-addr localhost --nproc-per-node 6 "+
		filepath.Join(worker, "easyrl_torch", "__main__.py"), lines[4])
}

// Python loads no modules from the working directory, nor from the shared folder, and the
// folder of the ranks' package belongs to this user alone.
func TestLaunchTrustsNoFolder(t *testing.T) {
	t.Parallel()
	cfg := configure(t.TempDir(), t.TempDir())
	out := filepath.Join(t.TempDir(), "out")
	cfg.Python = interpreter(t,
		`d=$(dirname "$EASYRL_MEETING"); { echo "$PYTHONSAFEPATH"; echo "$d"; ls -ld "$d"; ls "$d"/*/layout.py; } > `+
			out)
	_, err := Open(t.Context(), cfg)
	require.ErrorContains(t, err, "torchrun ended")
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 4)
	require.Equal(t, "1", lines[0])
	require.False(t, strings.HasPrefix(lines[1], cfg.Dir), lines[1])
	require.True(t, strings.HasPrefix(lines[2], "drwx------"), lines[2])
	require.Equal(t, filepath.Join(lines[1], "easyrl_torch", "layout.py"), lines[3])
}

// The ranks' output goes to no file outside the shared folder.
func TestLaunchFollowsNoLink(t *testing.T) {
	t.Parallel()
	cfg := configure(t.TempDir(), t.TempDir())
	cfg.Python = interpreter(t, "echo hello")
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("content"), 0o644))
	require.NoError(t, os.Symlink(victim, filepath.Join(cfg.Dir, OutputFile)))
	_, err := Open(t.Context(), cfg)
	require.ErrorContains(t, err, "start ranks: ")
	content, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "content", string(content))
}

func TestCause(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"":                                   "",
		"a\nb\n\n":                           "b",
		"Traceback\nValueError: bad\nmore\n": "ValueError: bad",
		"[rank1]: torch.OutOfMemoryError: CUDA out of memory.\nW1123 " +
			"x\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\n": "[rank1]: " +
			"torch.OutOfMemoryError: CUDA out of memory.",
		"KeyError: 'a'\nRoot Cause (first observed failure):\n  " +
			"traceback : To enable traceback see: https\n====\n": "KeyError: 'a'",
		"x\xffy": "x?y",
	} {
		require.Equal(t, want, cause([]byte(output)))
	}
	require.Len(t, oneLine(strings.Repeat("é", maxLine)), maxLine+len("…"))
}

// The rank that a signal killed first is at fault, whichever rank reported an error.
func TestKilled(t *testing.T) {
	ended := func(rank int, exit, why string) string {
		return fmt.Sprintf(
			"[0]:\n  time      : 2026\n  rank      : %d (local_rank: %d)\n  exitcode  : %s\n  traceback : %s\n", rank,
			rank, exit, why)
	}
	const trace, kill, abort = "To enable traceback see: https", "Signal 9 (SIGKILL) received by PID 12",
		"Signal 6 (SIGABRT) received by PID 13"
	for _, test := range []struct {
		others, root string
		number       int
		signal       string
	}{
		{"  <NO_OTHER_FAILURES>\n", ended(3, "-9 (pid: 12)", kill), 3, kill},
		{ended(1, "1 (pid: 13)", trace), ended(0, "-9 (pid: 12)", kill), 0, kill},
		{ended(1, "-9 (pid: 12)", kill), ended(0, "1 (pid: 13)", trace), 1, kill},
		{ended(0, "-6 (pid: 13)", abort), ended(1, "-9 (pid: 12)", kill), 1, kill},
		{"  <NO_OTHER_FAILURES>\n", ended(1, "1 (pid: 13)", trace), 0, ""},
	} {
		number, signal := killed([]byte("ValueError: x\nFailures:\n" + test.others +
			"---\nRoot Cause (first observed failure):\n" + test.root + "===\n"))
		require.Equal(t, test.signal, signal)
		require.Equal(t, test.number, number)
	}
	neighbour := &session.Fault{Rank: "rank 0 on a", Err: failure("RuntimeError: Connection closed by peer")}
	require.EqualError(t, explained(t, ended(0, "1 (pid: 13)", trace)+"Root Cause\n"+ended(1, "-9 (pid: 12)", kill),
		neighbour),
		"rank 1 on b: was killed: "+kill+"; see output")
	require.EqualError(t, explained(t, "RuntimeError: Connection closed by peer", neighbour),
		"rank 0 on a: RuntimeError: Connection closed by peer; see output")
	require.EqualError(t, explained(t, "MemoryError", &session.Fault{Rank: "rank 1 on b", Err: errClosed}),
		"rank 1 on b: closed its connection: MemoryError; see output")
	cfg := configure(t.TempDir(), t.TempDir())
	cfg.DP = 2
	starts := filepath.Join(t.TempDir(), "starts")
	cfg.Python = interpreter(t, "echo start >> "+starts+"; cat <<'END'\nRoot Cause (first observed failure):\n"+
		ended(1, "-9 (pid: 12)", kill)+"END\nexit 1")
	_, err := Open(t.Context(), cfg)
	require.ErrorContains(t, err, "torch: rank 1: was killed: "+kill+"; see ")
	require.ErrorContains(t, err, "; restarted 3 times since update 0")
	content, err := os.ReadFile(starts)
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(string(content), "start"))
}

// explained returns what a group of two ranks makes of an error after torchrun has ended with some
// output.
func explained(t *testing.T, output string, err error) error {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("output", []byte(output), 0o644))
	file, failed := os.Open("output")
	require.NoError(t, failed)
	defer file.Close() //nolint:errcheck // only read
	p, failed := program.Launch([]string{"true"}, nil, file)
	require.NoError(t, failed)
	g := &group{launch: &launch{program: p, output: "output"}}
	for i, host := range []string{"a", "b"} {
		g.ranks = append(g.ranks, &rank{arrival: arrival{hello: wire.Hello{Rank: i, Host: host}}})
	}
	return g.explain(err)
}
