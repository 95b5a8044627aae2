// Command easyrl trains language models with reinforcement learning from
// verifiable rewards: easyrl train run.toml.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/easyrl/easyrl/internal/cli"
)

func main() { os.Exit(runProcess(func(context.Context) io.Writer { return os.Stderr }, execute)) }

// runProcess runs this process's command with execute and returns its exit status. stderr returns the writer for
// the command's standard error, given the command's context; tests replace it.
func runProcess(stderr func(context.Context) io.Writer,
	execute func(ctx context.Context, std streams, args []string) int) int {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // net/http's log repeats errors that we already return
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup makes processes ignore it
		signal.Notify(signals, syscall.SIGHUP)
	}
	// With a handler for SIGPIPE, writing to a closed pipe returns an error instead of ending the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := cli.Interruptible(signals, os.Stderr, func() { os.Exit(exitFailed) })
	ctx, out := cli.Output(ctx, os.Stdout)
	code := execute(ctx, streams{in: os.Stdin, out: out, err: stderr(ctx)}, os.Args[1:])
	stop()
	return code
}
