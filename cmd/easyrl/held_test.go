package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/run"
)

// Environment variables that hold the command: the prefix of the line of standard error at
// which it stops, and a substring of the arguments that selects the process.
const (
	holdKey = "EASYRL_TEST_HOLD"
	holdRun = "EASYRL_TEST_HOLD_RUN"
)

// heldAt is a standard error that blocks after a line until a signal arrives, however
// late it is sent.
type heldAt struct {
	ctx  context.Context
	line string
}

func (h heldAt) Write(p []byte) (int, error) {
	n, err := os.Stderr.Write(p)
	if bytes.HasPrefix(p, []byte(h.line)) {
		<-h.ctx.Done()
	}
	return n, err
}

// heldMain is main of a process to be held. It returns if this process is not one.
func heldMain() {
	line := os.Getenv(holdKey)
	if line == "" || os.Args[1] == "compare" || !strings.Contains(strings.Join(os.Args, " "), os.Getenv(holdRun)) {
		return
	}
	os.Exit(runProcess(func(ctx context.Context) io.Writer { return heldAt{ctx, line} }, execute))
}

// killAfter runs the command in a process of its own and kills it at a line of its
// standard error.
func killAfter(t *testing.T, line string, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "EASYRL_TEST_AS_COMMAND=1", holdKey+"="+line)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), line) {
			require.NoError(t, cmd.Process.Kill())
			_, _ = io.Copy(io.Discard, stderr)
			require.Error(t, cmd.Wait())
			return
		}
	}
	require.Fail(t, "the run ended before it was killed", "%s", said.String())
}

// silenceKey is an environment variable of the command: the time after which ranks that show no sign of
// life have failed.
const silenceKey = "EASYRL_TEST_SILENCE"

// impatientMain is main of a rank with a silence of its own. It returns if this process is not one.
func impatientMain() {
	limit, err := time.ParseDuration(os.Getenv(silenceKey))
	if err != nil {
		return
	}
	train := func(ctx context.Context, resolved *configs.Resolved, opts run.Options) error {
		opts.Silence = limit
		return run.Train(ctx, resolved, opts)
	}
	os.Exit(runProcess(func(context.Context) io.Writer { return os.Stderr },
		func(ctx context.Context, std streams, args []string) int {
			verb := trainingVerb(std, configs.TrainTask, train, cli.Verb{Name: "train"})
			return exitStatus(ctx, std.err, cli.Execute(ctx, []cli.Verb{verb}, args, std.out, std.err))
		}))
}
