package layer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/cpu"
)

// The head gives the same bits, however its rows and the vocabulary are cut.
func TestCuts(t *testing.T) {
	t.Parallel()
	const n, vocab, d = 40, 1003, 24
	dev, err := cpu.Open(npu.FP32, 2)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(16, 17))
	buffer := func(length int) npu.Buffer {
		b, err := dev.Alloc(npu.Float32, length, npu.Activations)
		require.NoError(t, err)
		vals := make([]float32, length)
		for i := range vals {
			vals[i] = float32(rng.NormFloat64())
		}
		dev.Upload(b, vals)
		return b
	}
	x, dLogp := buffer(n*d), buffer(n)
	w := npu.Matrix{Buffer: buffer(dev.MatrixLen(vocab, d)), Rows: vocab, Cols: d}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(vocab)
	}
	batch := npu.NewBatch(dev)
	require.NoError(t, batch.Begin(n+3+npu.MaxUnits(3, n)))
	targets, leaves := batch.Ints(ids), batch.Leaves(npu.FixedPoint{Scale: 1 << 40, Limit: 1 << 55},
		[]int32{7, 8, n}, n)
	batch.Upload()
	run := func(logits, chunk int) []any {
		sums, err := dev.Alloc(npu.Int64, npu.SoftmaxSums*chunk, npu.Activations)
		require.NoError(t, err)
		h := Logits{dev: dev, logits: buffer(logits), max: buffer(chunk), sums: sums}
		logp, entropy, stats, dx := buffer(n), buffer(n), buffer(2*n), buffer(n*d)
		sumsOfW, err := dev.Alloc(npu.Int64, w.Len()+1, npu.Gradients)
		require.NoError(t, err)
		dev.Zero(sumsOfW)
		g := npu.MatrixSums{Sums: npu.NewSums(sumsOfW), Rows: vocab, Cols: d}
		h.Forward(logp, entropy, stats, x, w, targets, 0.8)
		h.Backward(dx, g, dLogp, stats, x, w, targets, 0.8, &leaves)
		require.NoError(t, dev.Sync())
		return []any{logp.Float32s(), entropy.Float32s(), stats.Float32s(), dx.Float32s(), g.Int64s()}
	}
	want := run(n*vocab, n)
	for _, test := range [][2]int{{12 * vocab, 12}, {32 * n, 1}, {n * 320, 12}, {n*vocab - 1, 39}} {
		require.Equal(t, want, run(max(test[0], test[1]*vocab), test[1]), fmt.Sprint(test))
	}
	require.Equal(t, []int{n * vocab, n}, []int{logitsLen(n, vocab), chunkRows(n, vocab)})
	require.Equal(t, []int{maxLogits, maxLogits / 150_000 / 12 * 12},
		[]int{logitsLen(4096, 150_000), chunkRows(4096, 150_000)})
	require.Equal(t, []int{maxLogits, 24}, []int{logitsLen(4096, npu.MaxVocab), chunkRows(4096, npu.MaxVocab)})
}
