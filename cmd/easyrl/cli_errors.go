package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/easyrl/easyrl/internal/usage"
	"github.com/easyrl/easyrl/run"
)

// exitStatus prints err and returns the exit status for it.
func exitStatus(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	var stopped run.StoppedError
	code := exitFailed
	switch {
	case errors.As(err, &stopped):
		code = exitStopped
	case usage.Is(err):
		code = exitUsage
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errInterrupted):
		err = context.Cause(ctx)
	}
	for line := range strings.Lines(err.Error()) {
		// Indented lines are an excerpt that belongs to the line above.
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, " ") {
			line = "easyrl: " + line
		}
		_, _ = fmt.Fprintln(w, line)
	}
	return code
}
