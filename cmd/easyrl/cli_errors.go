package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// usageError is a wrong command line or configuration: nothing was started or
// changed.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef is a usageError with a message.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// stoppedError ends a run that a signal stopped in order, when what it takes to
// go on is written.
type stoppedError struct {
	kept string // what is written and where
}

func (e stoppedError) Error() string { return "stopped; " + e.kept }

// oneLine is err with the faults that it joins on one line.
func oneLine(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return errors.New(text)
}

// jsonFault says in a user's words why JSON is not what was expected.
func jsonFault(err error, expected string) error {
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s: found a JSON %s, expected %s", mismatch.Field, mismatch.Value, expected)
	case errors.As(err, &mismatch):
		return fmt.Errorf("found a JSON %s, expected %s", mismatch.Value, expected)
	}
	return fmt.Errorf("not JSON: %w, expected %s", err, expected)
}

// exitStatus prints err and returns the status that it stands for.
func exitStatus(ctx context.Context, w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	var usage usageError
	var stopped stoppedError
	code := exitFailed
	switch {
	case errors.As(err, &stopped):
		code = exitStopped
	case errors.As(err, &usage):
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
