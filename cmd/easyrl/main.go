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
	slog.SetDefault(slog.New(slog.DiscardHandler)) // net/http's log repeats errors that we already return
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := interruptible(signals, os.Stderr, os.Exit)
	code := execute(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// errInterrupted is the cause of a context that a signal cancelled.
var errInterrupted = errors.New("stopped by signal")

// echo is the time in which further signals count as the same one: a terminal,
// timeout(1) and a supervisor may signal both a process and its group.
const echo = 300 * time.Millisecond

// interruptible returns a context that the first signal cancels, so that work can stop
// cleanly. A second signal exits at once. The caller calls stop when its work is done.
func interruptible(signals <-chan os.Signal, warn io.Writer, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("%w: %s", errInterrupted, sig))
			_, _ = fmt.Fprintf(warn, "\n%s: stopping cleanly; press Ctrl-C again to quit now\n", sig)
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
