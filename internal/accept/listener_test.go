package accept_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/accept"
)

// scarce is a listener whose first calls of Accept fail.
type scarce struct {
	net.Listener
	fails []error
}

func (l *scarce) Accept() (net.Conn, error) {
	if len(l.fails) == 0 {
		return l.Listener.Accept()
	}
	err := l.fails[0]
	l.fails = l.fails[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

// When the process is out of file descriptors, clients wait. Other errors end
// Accept.
func TestListenerWaitsForFiles(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := accept.New(&scarce{inner, []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED}})
	client, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, errors.Join(c.Close(), client.Close()))
	l = accept.New(&scarce{inner, []error{syscall.EBADF}})
	_, err = l.Accept()
	require.ErrorIs(t, err, syscall.EBADF)
	l = accept.New(&scarce{inner, slices.Repeat([]error{syscall.EMFILE}, 100)})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}
