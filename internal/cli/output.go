package cli

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// ErrUnread is the cause of a context that Output cancelled.
var ErrUnread = errors.New("nobody reads the output")

// Output returns a writer to w, and a context that is cancelled when w is a pipe that nobody
// reads any more.
func Output(ctx context.Context, w io.Writer) (context.Context, io.Writer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, output{w, cancel}
}

type output struct {
	io.Writer
	cancel context.CancelCauseFunc
}

// Write writes b.
func (o output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		o.cancel(ErrUnread)
	}
	return n, err
}
