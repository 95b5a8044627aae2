package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/inference"
	"github.com/easyrl/easyrl/npu"
)

// An engine frees its memory only when it has no requests, and gets it again for the next one.
func TestReleaseWaitsForRequests(t *testing.T) {
	t.Parallel()
	e, m := startFake(t, Config{MaxRunning: 4, CachePages: 12, Released: true})
	gate := make(chan struct{})
	m.gate = gate
	req := request(20, 3, 6)
	want := references(1, req, 256, letters{})
	got := make(chan []inference.Completion, 1)
	go func() {
		out, err := e.Generate(t.Context(), req)
		if err != nil {
			out = nil
		}
		got <- out
	}()
	gate <- struct{}{} // the first step runs
	released := make(chan error, 1)
	require.NoError(t, e.mailbox.ask(&memoryOrder{done: released})) // as Release does
	for range 3 {
		gate <- struct{}{}
		require.Empty(t, released)
	}
	for len(got) == 0 {
		select {
		case gate <- struct{}{}:
		case out := <-got:
			got <- out
		}
	}
	require.Equal(t, want, <-got)
	require.NoError(t, <-released)
	require.NoError(t, e.Release(t.Context()), "again")
	close(gate)
	again, err := e.Generate(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, want, again)
	require.NoError(t, e.Release(t.Context()))
	require.NoError(t, e.Allocate(t.Context()))
	require.NoError(t, e.Close())
	require.True(t, m.closed)
	require.ErrorIs(t, e.Release(t.Context()), inference.ErrClosed)
}

// Without memory, Allocate and requests fail, and the engine serves once there is some.
func TestNoMemoryToSample(t *testing.T) {
	t.Parallel()
	e, m := startFake(t, Config{MaxRunning: 4, CachePages: 12})
	require.NoError(t, e.Release(t.Context()))
	m.full = errors.New("out of memory")
	require.EqualError(t, e.Allocate(t.Context()), "engine e: out of memory")
	_, err := e.Generate(t.Context(), request(5, 2, 3))
	require.EqualError(t, err, "engine e: out of memory")
	require.NoError(t, e.Release(t.Context())) // the loop is idle
	m.full = nil
	_, err = e.Generate(t.Context(), request(5, 2, 3))
	require.NoError(t, err)
	closeFake(t, e)
}

// A released engine holds no memory of its device, and samples the same afterwards.
func TestReleasedEngineHoldsNoMemory(t *testing.T) {
	t.Parallel()
	c := modelShapes()["qwen3"]
	own := openCPU(t, 1)
	defer func() { require.NoError(t, own.Close()) }()
	w := newWeights(t, own, c, 3)
	reqs := modelRequests(c.VocabSize)
	plain := openEngine(t, c, w, Config{MaxRunning: 5}, 1)
	want := generateAll(t, plain, reqs)
	require.NoError(t, plain.Close())

	e := openEngine(t, c, w, Config{MaxRunning: 5, Released: true}, 1)
	dev := e.loop.m.(*runner).dev
	for range 3 {
		require.NoError(t, e.Release(t.Context()))
		require.Equal(t, [npu.NumPurposes]int64{}, dev.Allocated())
		require.NoError(t, e.Allocate(t.Context()))
		held := dev.Allocated()
		require.Positive(t, held[npu.KV])
		require.Positive(t, held[npu.Activations])
		require.Equal(t, want, generateAll(t, e, reqs))
	}
	require.NoError(t, e.Close())
}
