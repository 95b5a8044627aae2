//go:build !race

package sharded

import (
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/parallel"
)

// Publishing a version and writing a checkpoint need memory for one tensor and for each rank's part of
// it. A checkpoint also needs the ranks' copies.
func TestPublishingNeedsATensor(t *testing.T) {
	t.Run("one process", func(t *testing.T) {
		publishingNeedsATensor(t, func(c *model.Config, cfg Config) *Models { return open(t, c, cfg) })
	})
	t.Run("processes", func(t *testing.T) {
		publishingNeedsATensor(t, func(c *model.Config, cfg Config) *Models { return openApart(t, c, cfg) })
	})
}

func publishingNeedsATensor(t *testing.T, opened func(*model.Config, Config) *Models) {
	t.Helper()
	c := &model.Config{Type: "llama", HiddenSize: 256, FFNSize: 1024, Layers: 24, Heads: 8, KVHeads: 4, HeadDim: 32,
		VocabSize:    4096,
		MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.02, BOS: -1}
	m := opened(c, Config{Mesh: parallel.Mesh{DP: 1, TP: 2, PP: 2}, Models: config()})
	for version := range 2 { // the ranks' two slots
		_, err := m.Publish(t.Context(), int64(version))
		require.NoError(t, err)
	}
	const tensor = 4 * 4096 * 256
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	inHeap := func() uint64 {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	peak := func(work func()) int64 {
		runtime.GC()
		before, most := inHeap(), atomic.Uint64{}
		done := make(chan struct{})
		var watching conc.WaitGroup
		watching.Go(func() {
			for {
				most.Store(max(most.Load(), inHeap()))
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		allocated := m.Allocated()
		work()
		close(done)
		watching.Wait()
		require.Equal(t, allocated[npu.Weights], m.Allocated()[npu.Weights], "memory of devices")
		return int64(most.Load()) - int64(before)
	}
	publishing := peak(func() {
		w, err := m.Publish(t.Context(), 3)
		require.NoError(t, err)
		require.NoError(t, w.WriteSafetensors(io.Discard))
	})
	parts := int64(m.cfg.Mesh.Size()) * tensor / 2 // twice for ranks in other processes: sent and received
	t.Logf("publishing %.1f MB: %.2f MB more, with tensors of %.1f MB at most", 4e-6*float64(c.NumParams()),
		1e-6*float64(publishing), 1e-6*float64(tensor))
	require.Less(t, publishing, tensor+2*parts+tensor/2)

	write, err := m.Capture(t.Context(), 1)
	require.NoError(t, err)
	writing := peak(func() { require.NoError(t, write(t.TempDir())) })
	t.Logf("writing a checkpoint: %.2f MB more than its copies", 1e-6*float64(writing))
	require.Less(t, writing, 3*tensor+parts)
}
