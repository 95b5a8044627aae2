package parallel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/paralleltest"
)

func open(t testing.TB, n int) []parallel.Transport {
	var world []parallel.Transport
	for _, e := range parallel.NewLocal(n) {
		world = append(world, e)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
	}
	return world
}

func TestLocalConformance(t *testing.T) {
	t.Parallel()
	paralleltest.Run(t, open)
}

func TestLocalHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { paralleltest.Hang(t, open(t, 4), time.Hour) })
}

func TestLocalDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := parallel.NewLocal(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w[0].Recv(ctx, parallel.Envelope{Peer: 1, Channel: "x"}, nil)
		require.EqualError(t, err, "rank 1: no message before the deadline in send over x")
		require.Equal(t, err, w[2].Send(t.Context(), parallel.Envelope{Peer: 0, Channel: "y"}, nil))
	})
}

// Close ends the calls of its rank and those that wait for it.
func TestLocalClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := parallel.NewLocal(2)
		errs := make(chan error, 2)
		go func() { errs <- w[0].Recv(t.Context(), parallel.Envelope{Peer: 1, Channel: "x"}, nil) }()
		synctest.Wait()
		require.NoError(t, w[0].Close())
		require.ErrorContains(t, <-errs, "use of closed network connection")
		require.NoError(t, w[0].Close())
		err := w[1].Send(t.Context(), parallel.Envelope{Peer: 0, Channel: "x"}, nil)
		require.EqualError(t, err, "rank 0: left before send over x")
	})
}

func TestNoSuchRank(t *testing.T) {
	t.Parallel()
	w := parallel.NewLocal(2)
	for _, peer := range []int{-1, 0, 2} {
		require.ErrorContains(t, w[0].Recv(t.Context(), parallel.Envelope{Peer: peer, Channel: "x"}, nil),
			"expected 0 to 1 and not this one, 0")
	}
	_, err := parallel.NewGroup(w[0], "", []int{1, 1, 5}, 0)
	require.ErrorContains(t, err, `make group "": name is "", expected 1 to 59 bytes`)
	require.ErrorContains(t, err, "ranks are [1 1 5], expected them to contain this rank, 0")
	require.ErrorContains(t, err, "ranks are [1 1 5], expected distinct ones below 2")
	_, err = parallel.Mesh{DP: 3, TP: 1, PP: 1}.Join(w[0], parallel.Data, 0)
	require.EqualError(t, err, "join dp: mesh has 3 ranks, expected the world's 2")
}
