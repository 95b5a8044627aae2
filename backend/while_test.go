package backend

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// polled are models that only Poll: it returns err and ends wait.
type polled struct {
	Models
	ready chan struct{}
	wait  chan struct{}
	err   error
}

func (p *polled) Ready() <-chan struct{} { return p.ready }

func (p *polled) Poll(context.Context) error {
	close(p.wait)
	return p.err
}

func newPolled(err error) *polled {
	p := &polled{ready: make(chan struct{}, 1), wait: make(chan struct{}), err: err}
	p.ready <- struct{}{}
	return p
}

// Work that waits for Poll ends, with its own result.
func TestWhilePolls(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, want := range []error{nil, failed} {
		p := newPolled(nil)
		require.Equal(t, want, While(t.Context(), p, func(context.Context) error {
			<-p.wait
			return want
		}))
	}
}

// If Poll fails, work's context ends. Poll's error is returned, unless work succeeds.
func TestWhilePollFails(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	require.Equal(t, lost, While(t.Context(), newPolled(lost), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	require.NoError(t, While(t.Context(), newPolled(lost), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}))
}

// Without Ready, as for Serial, While only waits.
func TestWhileWithoutReady(t *testing.T) {
	t.Parallel()
	require.NoError(t, While(t.Context(), &polled{}, func(context.Context) error { return nil }))
}
