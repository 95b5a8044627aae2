// Package usage marks errors in the command line, the configuration or the files
// named there, so that a command can exit with its own status for them.
package usage

import (
	"errors"
	"fmt"
	"strings"
)

// Error marks a usage error: nothing was started or changed.
type Error struct{ Err error }

// Error returns the message of the wrapped error.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e Error) Unwrap() error { return e.Err }

// Errorf returns an Error formatted by fmt.Errorf.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Wrap marks err as a usage error; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return Error{err}
}

// OneLine returns an error with err's message, in which semicolons replace line breaks. It does not
// wrap err.
func OneLine(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// Is reports whether err is or wraps a usage error.
func Is(err error) bool {
	var e Error
	return errors.As(err, &e)
}

// Prefix prepends name to a usage error, or to each of the errors joined in it. It
// returns other errors unchanged.
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
