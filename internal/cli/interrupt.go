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

// echoWindow is the time after the first signal in which further ones count as the same: a
// terminal, timeout(1) and a supervisor may signal both a process and its group.
const echoWindow = 300 * time.Millisecond

// announceTimeout limits how long the cancellation of a context waits for its announcement.
const announceTimeout = time.Second

// announcementKey is the key of the context value that holds the text to announce.
type announcementKey struct{}

// OnSignal sets what the first signal announces, in place of "stopping cleanly". ctx must derive
// from Interruptible's context; otherwise OnSignal does nothing. It may be called concurrently.
func OnSignal(ctx context.Context, text string) {
	if announcement, ok := ctx.Value(announcementKey{}).(*atomic.Value); ok {
		announcement.Store(text)
	}
}

// Interruptible returns a context that the first signal cancels with a cause that wraps
// ErrInterrupted, so that work can stop cleanly. It announces this on warn first, so that the
// announcement precedes the work's last output. If warn blocks, it cancels after announceTimeout. A
// later signal calls quit, except SIGHUP, which may repeat that the terminal is gone, and signals within
// echoWindow. The caller must call stop when its work is done.
func Interruptible(signals <-chan os.Signal, warn io.Writer, quit func()) (ctx context.Context, stop func()) {
	var announcement atomic.Value
	announcement.Store("stopping cleanly")
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), announcementKey{}, &announcement))
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		var cause error
		announced := make(chan struct{})
		select {
		case sig := <-signals:
			cause = fmt.Errorf("%w: %s", ErrInterrupted, sig)
			go func() { // nothing waits for its end, because warn may block forever
				defer close(announced)
				_, _ = fmt.Fprintf(warn, "\n%s: %s; press Ctrl-C again to quit now\n", sig, announcement.Load())
			}()
		case <-done:
			return
		}
		var ended <-chan struct{} // nil until the context is cancelled, then done; so stop waits for the announcement
		first, late := time.Now(), time.After(announceTimeout)
		for {
			select {
			case <-announced:
				cancel(cause)
				announced, ended = nil, done
			case <-late:
				cancel(cause)
				ended = done
			case sig := <-signals:
				if sig != syscall.SIGHUP && time.Since(first) >= echoWindow {
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
