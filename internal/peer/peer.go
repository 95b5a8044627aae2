// Package peer shortens the errors of network connections.
package peer

import (
	"errors"
	"net"
	"strings"
)

// Fault returns err without the local address in its message, because the local port differs from
// call to call and does not help the reader. The result wraps err.
func Fault(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil || op.Addr == nil {
		return err
	}
	return fault{err, strings.ReplaceAll(err.Error(), op.Source.String()+"->", "")}
}

// fault is an error with another message.
type fault struct {
	error
	text string
}

func (f fault) Error() string { return f.text }

func (f fault) Unwrap() error { return f.error }
