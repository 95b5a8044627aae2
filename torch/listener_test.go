package torch

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/torch/fake"
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

// Without all ranks a session does not start, and says which are missing.
func TestMissingRanks(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 3
		began := time.Now()
		p := newPipes()
		conn := make(chan net.Conn, 1)
		var running sync.WaitGroup
		running.Go(func() {
			c, _ := p.dial(t.Context())
			_ = wire.Send(c, wire.Hello{Token: cfg.Token, Rank: 1, World: 3, Host: "a"}, wire.Body{})
			conn <- c
			_ = beat(c)
		})
		_, err := open(t.Context(), cfg, p)
		require.EqualError(t, err, "torch: ranks 0, 2 of 3 not connected to 127.0.0.1:7000 within 10m0s")
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.NoError(t, (<-conn).Close())
		running.Wait()
	})
}

// beat sends beats and reads everything until the connection ends.
func beat(c net.Conn) error {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	for {
		if err := wire.Send(c, wire.Beat{}, wire.Body{}); err != nil {
			return err
		}
		<-time.After(time.Second)
	}
}

// Strangers are refused with a reason, and do not disturb the run.
func TestStrangers(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := play(t, configure(dir, into), &fake.Ranks{})
		defer st.end()
		require.NoError(t, err)
		answer := func(send func(c net.Conn)) string {
			c, err := st.pipes.dial(t.Context())
			require.NoError(t, err)
			defer c.Close() //nolint:errcheck // a pipe
			go send(c)
			f, err := wire.Read(c, wire.AtMost(0))
			var refused wire.Refused
			if err != nil || f.Decode(&refused) != nil {
				return fmt.Sprint(err)
			}
			return refused.Error
		}
		hello := func(h wire.Hello) func(c net.Conn) {
			return func(c net.Conn) { _ = wire.Send(c, h, wire.Body{}) }
		}
		require.Equal(t, "all ranks are connected", answer(hello(wire.Hello{Token: "secret", World: 1})))
		require.Contains(t, answer(func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }),
			`magic is "GET "`)
		require.Contains(t, answer(func(net.Conn) {}), "i/o timeout")
		require.Contains(t, answer(func(c net.Conn) { _ = wire.Send(c, wire.Beat{}, wire.Body{}) }),
			`kind is "beat", expected "hello"`)
		train(t, st, 1)
		require.Empty(t, st.warnings)
	})
}

// While ranks are gathered, those of another session or token are refused.
func TestRefusedHellos(t *testing.T) {
	t.Parallel()
	dir, into := start(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := configure(dir, into)
		cfg.DP = 2
		p := newPipes()
		result := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := open(ctx, cfg, p)
			result <- err
		}()
		var conns []net.Conn
		answer := func(h wire.Hello) string {
			c, err := p.dial(t.Context())
			require.NoError(t, err)
			conns = append(conns, c)
			require.NoError(t, wire.Send(c, h, wire.Body{}))
			f, err := wire.Read(c, wire.AtMost(0))
			require.NoError(t, err)
			var refused wire.Refused
			if f.Decode(&refused) != nil {
				return f.Kind
			}
			return refused.Error
		}
		require.Equal(t, "the token is wrong", answer(wire.Hello{Token: "secreT", World: 2}))
		require.Equal(t, "world is 3 ranks, expected 2", answer(wire.Hello{Token: "secret", World: 3}))
		require.Equal(t, "rank is 2, expected 0 to 1", answer(wire.Hello{Token: "secret", World: 2, Rank: 2}))
		require.Equal(t, "rank is -1, expected 0 to 1", answer(wire.Hello{Token: "secret", World: 2, Rank: -1}))
		require.Equal(t, "beat", answer(wire.Hello{Token: "secret", World: 2, Rank: 1}))
		require.Equal(t, "the rank is taken", answer(wire.Hello{Token: "secret", World: 2, Rank: 1}))
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		for _, c := range conns {
			_ = c.Close()
		}
	})
}
