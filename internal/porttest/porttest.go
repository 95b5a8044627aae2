// Package porttest finds free addresses for tests that start to listen later.
package porttest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Address returns a free address, host:port, of the loopback interface. Its port is below those
// that the system assigns on its own. Until the test ends, no call of Address in any process returns
// it again: the port's UDP socket stays open and marks it as taken.
func Address(t testing.TB) string {
	t.Helper()
	const low, high = 10_000, 32_000
	for {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(low+rand.IntN(high-low)))
		mark, err := net.ListenPacket("udp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		l, err := net.Listen("tcp", addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			require.NoError(t, mark.Close())
			continue
		}
		require.NoError(t, err)
		require.NoError(t, l.Close())
		t.Cleanup(func() { _ = mark.Close() })
		return addr
	}
}
