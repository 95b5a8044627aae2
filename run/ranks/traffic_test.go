package ranks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/configs"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/model"
	"github.com/easyrl/easyrl/model/source"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
	"github.com/easyrl/easyrl/optim"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/report/trace"
	trimodel "github.com/easyrl/easyrl/tri_model"
)

// step returns what the ranks of a mesh exchange in a step with one micro-batch, and its rows.
func step(t *testing.T, shape *model.Config, mesh parallel.Mesh) (traffic map[string]int64, rows int64) {
	t.Helper()
	cfg := configs.Default()
	cfg.Parallel.DP, cfg.Parallel.TP, cfg.Parallel.PP, cfg.Device.Threads = mesh.DP, mesh.TP, mesh.PP, 1
	dev, err := cpu.Open(npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	m, err := StartMesh(t.Context(), &cfg, &MeshDeps{Device: dev, Whole: true, Shape: shape,
		Models: trimodel.Config{OldPolicy: loss.Behaviour, Temperature: 1, Optim: optim.Default(),
			Format: optim.FixedPoint(64, 16)},
		Each:  func(use source.Use) error { return source.Drawn(shape, 3, use) },
		Track: func(string) trace.Track { return trace.Track{} }})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	m.Traffic() // of the start
	_, err = m.Publish(t.Context(), 1)
	require.NoError(t, err)
	l := &attention.Layout{}
	l.AddGroup([]int32{1, 2, 3, 4, 5}, [][]int32{{6, 7, 8}, {9, 10}})
	l.EndLeaf()
	derive := func(out backend.Outputs) (backend.Values, error) { return out.Values, nil }
	require.NoError(t, m.Pass(t.Context(), l, 1, derive))
	require.NoError(t, m.Flush(t.Context()))
	_, err = m.Step(t.Context(), backend.Update{Number: 1, Scale: 1, LR: 1e-3})
	require.NoError(t, err)
	return m.Traffic(), int64(l.Rows())
}

// Ranks count what docs/parallel.md says that they send.
func TestTraffic(t *testing.T) {
	t.Parallel()
	shape := &model.Config{Type: "llama", HiddenSize: 64, FFNSize: 256, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 32,
		VocabSize:    512,
		MaxPositions: 128, NormEps: 1e-6, RopeTheta: 1e4, InitStd: 0.05, BOS: -1}
	const width = 4 * 64
	t.Run("dp", func(t *testing.T) {
		t.Parallel()
		got, _ := step(t, shape, parallel.Mesh{DP: 2, TP: 1, PP: 1})
		require.InEpsilon(t, 8*shape.NumParams(), got["dp"], 0.01, "64-bit sums")
		require.Equal(t, map[string]int64{"dp": got["dp"], "publish": 0}, got)
	})
	t.Run("pp", func(t *testing.T) {
		t.Parallel()
		got, rows := step(t, shape, parallel.Mesh{DP: 1, TP: 1, PP: 2})
		require.Equal(t, map[string]int64{"pp": rows * width, "publish": 0}, got, "a process copies its weights")
	})
	t.Run("tp", func(t *testing.T) {
		t.Parallel()
		got, rows := step(t, shape, parallel.Mesh{DP: 1, TP: 2, PP: 1})
		require.Greater(t, got["tp"], 4*int64(shape.Layers)*rows*width, "four sums for each layer, and the head")
		require.Less(t, got["tp"], 6*int64(shape.Layers)*rows*width)
		require.Len(t, got, 2)
	})
}

// Rank 0 counts the values that other processes send.
func TestTrafficOfPublishing(t *testing.T) {
	t.Parallel()
	ends := parallel.NewLocal(2)
	counting, counts := countBytes([]parallel.Transport{ends[0]})
	m := Mesh{mesh: parallel.Mesh{DP: 1, TP: 1, PP: 2}, counts: counts}
	sent := make(chan error, 1)
	go func() {
		sent <- ends[1].Send(t.Context(), parallel.Envelope{Peer: 0, Channel: "values/send"}, make([]byte, 5))
	}()
	from := parallel.Envelope{Peer: 1, Channel: "values/send"}
	require.NoError(t, counting[0].Recv(t.Context(), from, make([]byte, 5)))
	require.NoError(t, <-sent)
	require.Equal(t, map[string]int64{"pp": 0, "publish": 5}, m.Traffic())
	require.Equal(t, map[string]int64{"pp": 0, "publish": 0}, m.Traffic())
	for _, end := range ends {
		require.NoError(t, end.Close())
	}
}
