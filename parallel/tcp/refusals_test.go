package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/porttest"
)

// The first refusal of each cause gets a line of its own; a summary counts all others.
func TestRefusalsAreSummedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := newNotes()
		r := refusals{warn: said.warn}
		from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 7}
		for range 300 {
			r.add(from, errors.Join(nil, refusal{noToken, "token differs"}))
			r.add(from, io.EOF)
		}
		require.Equal(t, []string{"refuse connection from 10.0.0.9:7: token differs",
			"refuse connection from 10.0.0.9:7: EOF"}, said.all())
		<-time.After(summaryInterval) // of the test's own clock
		synctest.Wait()
		require.Len(t, said.all(), 3)
		require.Equal(t, "refused 598 more connections: 299 without a handshake, 299 without the token", said.all()[2])
		<-time.After(10 * summaryInterval)
		require.Len(t, said.all(), 3)
		r.add(from, refusal{noToken, "token differs"})
		r.flush()
		require.Equal(t, "refused 1 more connections: 1 without the token", said.all()[3])
		<-time.After(10 * summaryInterval)
		require.Len(t, said.all(), 4)
	})
}

// The oldest connection without a handshake gives way, but none that was removed.
func TestLobby(t *testing.T) {
	t.Parallel()
	var h handshakes
	proven, peer := net.Pipe()
	h.add(proven)
	require.True(t, h.remove(proven))
	require.False(t, h.remove(proven))
	var conns []net.Conn
	for range maxHandshakes + 3 {
		c, _ := net.Pipe()
		h.add(c)
		conns = append(conns, c)
	}
	for i, c := range conns {
		require.Equal(t, i >= 3, h.remove(c), "connection %d", i)
	}
	_, err := conns[0].Read(nil)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NoError(t, proven.Close())
	require.NoError(t, peer.Close())
}

// The refusal of a connection that gave way says so.
func TestGaveWay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	peer := dial(t, l.Addr().String())
	oldest, err := l.Accept()
	require.NoError(t, err)
	said := newNotes()
	w := newWorld(Config{Size: 2, Token: []byte(secret), Warn: said.warn}.withDefaults())
	w.handshakes.add(oldest)
	for range maxHandshakes {
		c, _ := net.Pipe()
		w.handshakes.add(c)
	}
	require.Nil(t, w.admit(oldest))
	require.Equal(t, []string{"refuse connection from " + peer.LocalAddr().String() + ": " + errGaveWay.Error()},
		said.all())
}

// Connections that say nothing keep no rank out, and no message of ranks that have joined.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	addr, said, opened := hostOf2(t)
	var held []net.Conn
	crowd := func(addr string) {
		for range maxHandshakes + 50 {
			held = append(held, dial(t, addr))
		}
	}
	crowd(addr)
	w, err := Open(t.Context(), Config{Rank: 1, Size: 2, Master: addr, Token: []byte(secret), Run: "run",
		Numerics: "a"})
	require.NoError(t, err)
	defer w.Close()
	first, err := opened()
	require.NoError(t, err)
	defer first.Close()
	crowd(addr)
	crowd(first.addrs[1])
	require.NoError(t, exercise(t.Context(), w, first))
	require.NoError(t, exercise(t.Context(), first, w))
	require.Len(t, held, 3*(maxHandshakes+50))
	require.NoError(t, first.Close())
	all := strings.Join(said.all(), "\n")
	require.Regexp(t, errGaveWay.Error()+"|i/o timeout", all) // whichever comes first
	require.Less(t, len(said.all()), 10)
}

// A master address of another machine is said, and rank 0 can be reached all the same.
func TestMasterElsewhere(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(porttest.Address(t))
	require.NoError(t, err)
	said := newNotes()
	cfg := Config{Size: 2, Master: "192.0.2.1:" + port, Token: []byte(secret), Warn: said.warn}
	errs := make(chan error, 1)
	var w *World
	go func() {
		var err error
		w, err = Open(t.Context(), cfg)
		errs <- err
	}()
	said.wait("192.0.2.1 is not an address of this machine, so rank 0 listens at port " + port +
		" of all its addresses")
	cfg.Rank, cfg.dial = 1, func(ctx context.Context, addr string) (net.Conn, error) {
		addr = strings.Replace(addr, "192.0.2.1", "127.0.0.1", 1)
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	other, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, <-errs)
	require.NoError(t, exercise(t.Context(), other, w))
	require.NoError(t, errors.Join(other.Close(), w.Close()))
}
