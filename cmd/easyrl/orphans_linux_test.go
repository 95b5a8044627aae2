package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No process of a reward program outlives a run, whatever ends it. The program has a child
// in a session of its own, and never answers.
func TestRewardProgramsEndWithTheRun(t *testing.T) {
	t.Parallel()
	needsEnv(t)
	dir := tinyRun(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT,
		syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(sig) {
				t.Skip("it is ignored here, as under nohup")
			}
			mark := fmt.Sprintf("EASYRL_TEST_RUN=%d %v", os.Getpid(), sig)
			running := func() (n int) {
				paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
				for _, path := range paths {
					environ, err := os.ReadFile(path) // fails if the process has ended
					if err == nil && bytes.Contains(environ, []byte(mark+"\x00")) {
						n++
					}
				}
				return n
			}
			up := filepath.Join(t.TempDir(), "up")
			require.NoError(t, syscall.Mkfifo(up, 0o600))
			p := startProcess(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, mark, "UP="+up) }, "train",
				filepath.Join(dir, "run.toml"),
				"-set", fmt.Sprintf("run.dir=%q", filepath.Join(dir, sig.String())),
				"-set", fmt.Sprintf(
					`reward={kind="command",command=["sh","-c",%q],env=["UP","EASYRL_TEST_RUN"],timeout=1000}`,
					`setsid sleep 1000 & echo up >"$UP"; sleep 1000`))
			_, err := os.ReadFile(up) // until the program runs
			require.NoError(t, err)
			require.Eventually(t, func() bool { return running() >= 4 }, time.Minute, time.Millisecond)
			p.signal(sig)
			p.end()
			require.Eventually(t, func() bool { return running() == 0 }, time.Minute, 20*time.Millisecond)
		})
	}
}
