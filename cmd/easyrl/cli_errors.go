package main

import (
	"context"
	"errors"
	"io"

	"github.com/easyrl/easyrl/internal/cli"
	"github.com/easyrl/easyrl/internal/notice"
	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

// exitStatus prints err to w and returns the exit status for it. It prints nothing if ctx ended because no
// process reads the command's output any more.
func exitStatus(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	if errors.Is(context.Cause(ctx), cli.ErrUnread) {
		return exitFailed
	}
	var stopped run.StoppedError
	code := exitFailed
	switch {
	case errors.As(err, &stopped):
		code = exitStopped
	case usage.Is(err):
		code = exitUsage
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), cli.ErrInterrupted):
		err = context.Cause(ctx)
	}
	if code == exitStopped {
		notice.Print(w, notice.Progress, "%s", stopped.Message)
		if stopped.Continue != "" {
			notice.Print(w, notice.Hint, "continue with: %s", stopped.Continue)
		}
		return code
	}
	notice.Print(w, notice.Error, "%v", err)
	return code
}
