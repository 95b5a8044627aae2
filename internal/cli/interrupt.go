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

// patience is how long a context waits for the line that announces its cancellation.
const patience = time.Second

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
// cleanly. It announces that on warn first, so that the announcement precedes the work's last
// output; if warn blocks, it cancels after patience. At a second signal it calls quit, unless
// that says again that the terminal is gone. The caller calls stop when its work is done.
func Interruptible(signals <-chan os.Signal, warn io.Writer, quit func()) (ctx context.Context, stop func()) {
	var say atomic.Value
	say.Store("stopping cleanly")
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), sayKey{}, &say))
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		var cause error
		said := make(chan struct{})
		select {
		case sig := <-signals:
			cause = fmt.Errorf("%w: %s", ErrInterrupted, sig)
			go func() { // not waited for: it blocks as long as warn does
				defer close(said)
				_, _ = fmt.Fprintf(warn, "\n%s: %s; press Ctrl-C again to quit now\n", sig, say.Load())
			}()
		case <-done:
			return
		}
		var ended <-chan struct{} // done, once the context is cancelled
		first, late := time.Now(), time.After(patience)
		for {
			select {
			case <-said:
				cancel(cause)
				said, ended = nil, done
			case <-late:
				cancel(cause)
				ended = done
			case sig := <-signals:
				if sig != syscall.SIGHUP && time.Since(first) >= echo {
					quit()
					return
				}
			case <-ended:
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
