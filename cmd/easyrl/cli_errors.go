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

// oneLine is err with the faults that it joins on one line.
func oneLine(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return errors.New(text)
}

// exitStatus prints err and returns the status that it stands for.
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
		// Lines of an excerpt are indented and follow the line that they explain.
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, " ") {
			line = "easyrl: " + line
		}
		_, _ = fmt.Fprintln(w, line)
	}
	return code
}
