package torch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/torch/wire"
)

// Silent connections, however many, keep no rank out.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	in := newPipes()
	l := listen(in)
	defer l.close()
	for range 2 * maxWaiting {
		_, err := in.dial(t.Context())
		require.NoError(t, err)
	}
	conn, err := in.dial(t.Context())
	require.NoError(t, err)
	require.NoError(t, wire.Send(conn, wire.Hello{Rank: 3}, wire.Body{}))
	a := <-l.arrivals
	require.Equal(t, 3, a.hello.Rank)
	require.NoError(t, a.conn.Close())
}

// Connections that say hello while nobody takes ranks are bounded.
func TestWaitingConnections(t *testing.T) {
	t.Parallel()
	in := newPipes()
	l := listen(in)
	defer l.close()
	for range maxWaiting {
		l.places <- struct{}{}
	}
	conn, err := in.dial(t.Context())
	require.NoError(t, err)
	require.NoError(t, wire.Send(conn, wire.Hello{}, wire.Body{}))
	f, err := wire.Read(conn, wire.AtMost(0))
	require.NoError(t, err)
	var refused wire.Refused
	require.NoError(t, f.Decode(&refused))
	require.Equal(t, "too many connections wait", refused.Error)
}
