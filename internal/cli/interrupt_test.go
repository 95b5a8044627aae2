package cli

import (
	"bytes"
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockedBuffer is a buffer that a goroutine may write to while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestSignals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var warn lockedBuffer
		signals, quits := make(chan os.Signal), make(chan bool, 1)
		ctx, stop := Interruptible(signals, &warn, func() { quits <- true })
		require.NoError(t, ctx.Err())
		signals <- syscall.SIGINT
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrInterrupted)
		signals <- syscall.SIGINT // within echo of the first
		synctest.Wait()
		require.Empty(t, quits)
		<-time.After(echo)
		signals <- syscall.SIGHUP
		synctest.Wait()
		require.Empty(t, quits)
		signals <- syscall.SIGTERM
		require.True(t, <-quits)
		require.Contains(t, warn.String(), "interrupt: stopping cleanly; press Ctrl-C again to quit now")
		stop()

		ctx, stop = Interruptible(signals, &warn, func() { t.Error("quits after one signal") })
		OnSignal(ctx, "waiting for others")
		signals <- syscall.SIGTERM
		<-ctx.Done()
		stop()
		require.Contains(t, warn.String(), "terminated: waiting for others; press Ctrl-C again to quit now")
		OnSignal(t.Context(), "nothing")

		ctx, stop = Interruptible(signals, &warn, func() { t.Error("quits without a signal") })
		stop()
		require.NotErrorIs(t, context.Cause(ctx), ErrInterrupted)
	})
}
