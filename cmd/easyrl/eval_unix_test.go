//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/run"
)

// gatedEval returns the arguments of an evaluation that waits for the score of one prompt
// while it scores the others, its output file, and the folder of the pipes with which the
// test releases it.
func gatedEval(t *testing.T) (args []string, out, gate string) {
	t.Helper()
	needsEnv(t)
	dir, gate := badRun(t), t.TempDir()
	b, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	data := write(t, dir, "held.jsonl", string(b)+`{"prompt":"`+gatedPrompt+`","answer":"1"}`+"\n")
	out = filepath.Join(dir, "new", "eval.jsonl")
	return []string{"eval", "-json", "-model", filepath.Join(dir, "m"), "-data", data, "-max-tokens", "6", "-out", out,
		"-set",
		fmt.Sprintf(
			`reward={kind="command",command=["env","EASYRL_TEST_AS_REWARD=gate:%s",%q],timeout=100,concurrency=3}`,
			gate, os.Args[0])}, out, gate
}

// An evaluation stopped by a signal says how to resume, and resumes. Its result and record
// equal those of an uninterrupted one, bit for bit. A killed one says nothing and may leave
// half a line, but ends the same.
func TestStoppedEvalResumes(t *testing.T) {
	t.Parallel()
	args, out, gate := gatedEval(t)
	code, want, errs := command(t, args...)
	require.Zero(t, code, errs)
	whole, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			require.NoError(t, os.Remove(out))
			for _, pipe := range []string{"asked", "told"} {
				require.NoError(t, syscall.Mkfifo(filepath.Join(gate, pipe), 0o644))
			}
			p := startProcess(t, nil, args...)
			requireAsked(t, filepath.Join(gate, "asked"))
			p.until("23/24 prompts")
			p.signal(signal)
			again := run.Command(append([]string{os.Args[0]}, args...)...)
			code, errs := p.end()
			for _, pipe := range []string{"asked", "told"} {
				require.NoError(t, os.Remove(filepath.Join(gate, pipe)))
			}
			b, err := os.ReadFile(out)
			require.NoError(t, err)
			if signal == syscall.SIGKILL {
				cut := b[:len(b)-20]
				require.NoError(t, os.WriteFile(out, cut, 0o644))
			} else {
				require.Equal(t, exitStopped, code, errs)
				require.Contains(t, errs, "\nstopped after 23 of 24 prompts, which are in "+out+
					"\nhint: continue with: ")
				again = continued(t, errs)
			}
			require.Equal(t, 1+23, bytes.Count(b, []byte("\n")))
			got, errs := shell(t, again)
			require.Regexp(t, `(?m)^2[23] of 24 prompts are already done`, errs)
			require.Equal(t, want, got)
			b, err = os.ReadFile(out)
			require.NoError(t, err)
			require.Equal(t, string(whole), string(b))
		})
	}
}

// The same holds if it is killed at any time.
func TestKilledEvalResumes(t *testing.T) {
	t.Parallel()
	args, out, _ := gatedEval(t)
	code, want, errs := command(t, args...)
	require.Zero(t, code, errs)
	whole, err := os.ReadFile(out)
	require.NoError(t, err)
	require.NoError(t, os.Remove(out))
	for range 5 {
		p := startProcess(t, nil, args...)
		for line := range p.lines {
			if strings.Contains(line, "/24 prompts") { // one more is done
				break
			}
		}
		p.signal(syscall.SIGKILL)
		_, _ = p.end()
	}
	code, got, errs := command(t, args...)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "of 24 prompts are already done")
	require.Equal(t, want, got)
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, string(whole), string(b))
}
