// Command easyrl trains language models with reinforcement learning from
// verifiable rewards: easyrl train run.toml.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what net/http logs of a connection, the call that fails tells too
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := interruptible(signals, os.Stderr, os.Exit)
	code := execute(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// echo is how long after a signal another one counts as the same: a terminal, a
// timeout and a supervisor send it to a process and to its group.
const echo = 300 * time.Millisecond

// interruptible returns a context that the first signal cancels, so that work
// can end in order; the second one exits at once. The caller calls stop when
// the work is done.
func interruptible(signals <-chan os.Signal, warn io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("%w by %s", errInterrupted, sig))
			_, _ = fmt.Fprintf(warn, "\neasyrl: %s: ending in order; once more to exit at once\n", sig)
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(first) >= echo {
					exit(exitFailed)
					return
				}
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		close(done)
		watcher.Wait()
		cancel(nil)
	}
}
