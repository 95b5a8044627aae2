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
		signals <- syscall.SIGINT // within echoWindow of the first
		synctest.Wait()
		require.Empty(t, quits)
		<-time.After(echoWindow)
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

// gate is a writer that blocks until it is opened.
type gate struct {
	reached chan bool
	open    chan bool
	lockedBuffer
}

func newGate() *gate { return &gate{reached: make(chan bool, 3), open: make(chan bool)} }

func (g *gate) Write(p []byte) (int, error) {
	g.reached <- true
	<-g.open
	return g.lockedBuffer.Write(p)
}

// The work learns of a signal once the line that announces its end has been written.
func TestSignalIsSaidFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, warn := make(chan os.Signal), newGate()
		ctx, stop := Interruptible(signals, warn, func() { t.Error("quits after one signal") })
		signals <- syscall.SIGINT
		<-warn.reached
		synctest.Wait()
		require.NoError(t, ctx.Err())
		close(warn.open)
		<-ctx.Done()
		require.Contains(t, warn.String(), "interrupt: stopping cleanly; ")
		require.ErrorIs(t, context.Cause(ctx), ErrInterrupted)
		stop()
	})
}

// Work that ends by itself while the line is being written ends after the line.
func TestStopWaitsForTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, warn := make(chan os.Signal), newGate()
		_, stop := Interruptible(signals, warn, func() { t.Error("quits after one signal") })
		signals <- syscall.SIGINT
		<-warn.reached
		stopped := make(chan bool)
		go func() {
			defer close(stopped)
			stop()
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stops before the line is written")
		default:
		}
		close(warn.open)
		<-stopped
		require.Contains(t, warn.String(), "interrupt: stopping cleanly; ")
	})
}

// A standard error that nobody reads delays the end by no more than announceTimeout, and neither
// hides a second signal nor keeps stop waiting.
func TestSignalWithBlockedWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, quits, warn := make(chan os.Signal), make(chan bool, 1), newGate()
		ctx, stop := Interruptible(signals, warn, func() { quits <- true })
		began := time.Now()
		signals <- syscall.SIGINT
		<-ctx.Done()
		require.Equal(t, announceTimeout, time.Since(began))
		require.ErrorIs(t, context.Cause(ctx), ErrInterrupted)
		signals <- syscall.SIGINT
		require.True(t, <-quits)
		stop()

		ctx, stop = Interruptible(signals, warn, func() { quits <- true })
		signals <- syscall.SIGTERM
		<-time.After(echoWindow)
		require.NoError(t, ctx.Err())
		signals <- syscall.SIGTERM
		require.True(t, <-quits)
		stop()

		ctx, stop = Interruptible(signals, warn, func() { t.Error("quits after one signal") })
		signals <- syscall.SIGTERM
		<-ctx.Done()
		stop()
		require.Empty(t, warn.String())
		close(warn.open)
	})
}
