package cli

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// ErrUnread is the cause of a context that Output cancelled.
var ErrUnread = errors.New("nobody reads the output")

// Output returns a writer to w and a context derived from ctx. A write to a pipe without a
// reader cancels the context with the cause ErrUnread.
func Output(ctx context.Context, w io.Writer) (context.Context, io.Writer) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, output{w, cancel}
}

type output struct {
	io.Writer
	cancel context.CancelCauseFunc
}

// Write implements io.Writer.
func (o output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		o.cancel(ErrUnread)
	}
	return n, err
}
