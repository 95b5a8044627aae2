package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFault(t *testing.T) {
	t.Parallel()
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}, &net.TCPAddr{IP: net.IPv6loopback, Port: 80}
	lost := &net.OpError{Op: "read", Net: "tcp", Source: here, Addr: there, Err: syscall.ECONNRESET}
	err := Fault(fmt.Errorf("ask: %w", &url.Error{Op: "Get", URL: "http://x", Err: lost}))
	require.EqualError(t, err, `ask: Get "http://x": read tcp [::1]:80: connection reset by peer`)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Contains(t, lost.Error(), "40000", "the error itself may be shared")
	for _, same := range []error{nil, io.EOF, errors.New("x"),
		&net.OpError{Op: "dial", Net: "tcp", Addr: there, Err: syscall.ECONNREFUSED}} {
		require.Equal(t, same, Fault(same))
	}
}
