// Package usage marks faults of the command line, a configuration or the files
// that they name, so that a command can exit with a status of its own for them.
package usage

import (
	"errors"
	"fmt"
)

// Error is such a fault: nothing was started or changed.
type Error struct{ Err error }

// Error is the fault's message.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e Error) Unwrap() error { return e.Err }

// Errorf is an Error with the message and wrapping of fmt.Errorf.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Wrap marks err, unless it is nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return Error{err}
}

// Is reports whether err is such a fault or wraps one.
func Is(err error) bool {
	var e Error
	return errors.As(err, &e)
}

// Prefix puts name before each of the faults that a usage error joins. Other
// errors stay as they are.
func Prefix(name string, err error) error {
	var e Error
	if !errors.As(err, &e) {
		return err
	}
	return Error{prefix(name, e.Err)}
}

func prefix(name string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only errors.Join's own form is split
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, prefix(name, e))
	}
	return errors.Join(errs...)
}
