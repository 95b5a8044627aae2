package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrInterrupted is the cause of a context that a signal cancelled.
var ErrInterrupted = errors.New("stopped by signal")

// echo is the time in which further signals count as the same one: a terminal,
// timeout(1) and a supervisor may signal both a process and its group.
const echo = 300 * time.Millisecond

// sayKey is the key of the context value that OnSignal sets.
type sayKey struct{}

// OnSignal sets what Interruptible's first signal prints, in place of "stopping cleanly". Without
// Interruptible it does nothing.
func OnSignal(ctx context.Context, text string) {
	if say, ok := ctx.Value(sayKey{}).(*atomic.Value); ok {
		say.Store(text)
	}
}

// Interruptible returns a context that the first signal cancels, so that work can stop
// cleanly. At a second one it calls quit, unless that says again that the terminal is gone.
// The caller calls stop when its work is done.
func Interruptible(signals <-chan os.Signal, warn io.Writer, quit func()) (ctx context.Context, stop func()) {
	var say atomic.Value
	say.Store("stopping cleanly")
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), sayKey{}, &say))
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("%w: %s", ErrInterrupted, sig))
			_, _ = fmt.Fprintf(warn, "\n%s: %s; press Ctrl-C again to quit now\n", sig, say.Load())
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case sig := <-signals:
				if sig != syscall.SIGHUP && time.Since(first) >= echo {
					quit()
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
