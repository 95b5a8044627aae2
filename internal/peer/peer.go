// Package peer words the errors of network connections.
package peer

import (
	"errors"
	"net"
	"strings"
)

// Fault returns err without this side's address in its message. The port differs from call
// to call and means nothing to anyone.
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
